#!/usr/bin/env python3
"""Makes tests/data/tokenizers: tiny tokenizers of every supported kind and what the references answer.

  pip install tokenizers==0.23.3 tiktoken==0.14.0
  python3 tests/data/make_tokenizers.py

NAME/tokenizer.json is trained on the text below; cases.jsonl holds its answers, one case a line:
{"tokenizer", "text", "special" (special tokens in the text are parsed), "ids", "decoded"}.
words/vocab.txt has the words of words/tokenizer.json; ranks.tiktoken is a rank file split as cl100k.
"""
import base64
import json
import random
from pathlib import Path

import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre

OUT = Path(__file__).parent / "tokenizers"
TEXT = """
The ferry leaves at seven and the bell rings twice. It's late, we're early, they'll wait; I'd say you've
time. Nets dry on the quay: 12 nets, 340 floats, 5678 hooks. café naïve Zürich Ångström señor
def haul(nets, *floats):\n    return [net + 1 for net in nets if net != 0]\n
<b>tide</b> & <i>wind</i>  //  https://tides.example/table?day=12&hour=7
潮汐表 渔船出海 港は静かです フェリー 바다 배 море лодка θάλασσα हवा بحر
""" * 3
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LINES = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
          r"|\s*[\r\n]|\s+(?!\S)|\s")
EXPRESSIONS = {
    "dbrx": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + LINES],
    "qwen2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + LINES],
    "gpt-4o": [f"{LEAD}{UPPER}*{LOWER}+{CONTRACTIONS}?|{LEAD}{UPPER}+{LOWER}*{CONTRACTIONS}?"
               r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^""" "\r\n" r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                    r"| ?[\p{P}\p{S}]+[" "\r\n" r"]*|\s*[" "\r\n" r"]+|\s+(?!\S)|\s+"],
}
ALPHABET = list("  aabetnTHE'\n\t.,-<>/019") + ["'s", "'LL", "é", "e\u0301", "u\u0308", "ſ", "İ", "ß", "中", "港", "は", "ー", "한",
                                               "\u1112\u1161\u11ab", "ह", "\u0939\u093f", "ب", "٣", "½", "Ⅷ", "😀", "👩\u200d🚀", "\u3000", "\u00a0", "\u2028",
                                               "\u180e", "\u200b", "\ufeff", "\x00", "\x1c", "\u0085", "▁", "▁▁", "##", "Ġ", "<s>", "</s>", "<|end|>",
                                               "<tool>", "[CLS]", "[UNK]", "  ", "\r\n", "\n\n", "net", " nets", "The ferry", "ﬁ", "\u0344", "\u212b"]


def texts():
    chosen = random.Random(7)
    yield from ["", " ", "  ", "a", " The", "The nets, the quay.", "<s>The<|end|> \n net <tool> x", "a" * 120]
    for _ in range(60):
        yield "".join(chosen.choice(ALPHABET) for _ in range(chosen.randint(1, 24)))


def add_tokens(tokenizer, **flags):
    tokenizer.add_special_tokens([AddedToken("<s>", special=True, normalized=False),
                                  AddedToken("</s>", special=True, normalized=False, lstrip=True),
                                  AddedToken("<|end|>", special=True, normalized=False, rstrip=True)])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("▁▁", normalized=False)])


def byte_level(name):
    steps = [pre.Split(Regex(e), "isolated") for e in EXPRESSIONS.get(name, [])]
    if name == "smollm":
        steps = [pre.Digits(individual_digits=True)]
    steps.append(pre.ByteLevel(add_prefix_space=False, use_regex=name in ("gpt-2", "smollm")))
    tokenizer = Tokenizer(models.BPE(ignore_merges=name == "gpt-4o"))
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre.Sequence(steps) if len(steps) > 1 else steps[0]
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=420, show_progress=False, initial_alphabet=sorted(pre.ByteLevel.alphabet())))
    add_tokens(tokenizer)
    return tokenizer


def sentencepiece(prefix):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    special = ["<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(TEXT.replace("で", "").split("\n"), trainers.BpeTrainer(
        vocab_size=560, show_progress=False, special_tokens=special))
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] == "<unk>"]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    replace = normalizers.Replace(" ", "▁")
    if prefix == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace])
    elif prefix == "none":
        tokenizer.normalizer = replace
        tokenizer.pre_tokenizer = pre.Split(" ", "merged_with_previous")
    else:
        tokenizer.normalizer = None
        tokenizer.pre_tokenizer = pre.Metaspace(prepend_scheme=prefix, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + ([] if prefix == "none" else [decoders.Strip(" ", 1, 0)]))
    add_tokens(tokenizer)
    return tokenizer


def wordpiece(lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator([TEXT], trainers.WordPieceTrainer(
        vocab_size=420, show_progress=False, special_tokens=special))
    return tokenizer


def write_ranks(cases):
    alphabet = {c: b for b, c in enumerate_byte_alphabet()}
    vocab = json.loads(byte_level("dbrx").to_str())["model"]["vocab"]
    pieces = [bytes(alphabet[c] for c in piece) for piece in sorted(vocab, key=vocab.get)]
    pieces = sorted(pieces[:256], key=lambda p: p[0]) + pieces[256:]
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    (OUT / "ranks.tiktoken").write_text("".join(f"{base64.b64encode(p).decode()} {r}\n" for p, r in ranks.items()))
    encoding = tiktoken.Encoding("tiny", pat_str=CL100K, mergeable_ranks=ranks, special_tokens={})
    for text in texts():
        ids = encoding.encode(text, disallowed_special=())
        cases.append({"tokenizer": "ranks", "text": text, "ids": ids, "decoded": encoding.decode(ids)})


def enumerate_byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return [(b, chr(b)) for b in printable] + [(b, chr(256 + n)) for n, b in enumerate(rest)]


def main():
    made = {name: byte_level(name) for name in ("gpt-2", "smollm", *EXPRESSIONS)}
    made.update({f"spaces-{prefix}": sentencepiece(prefix) for prefix in ("prepend", "first", "always", "none")})
    made.update({"words": wordpiece(True), "words-cased": wordpiece(False)})
    cases = []
    for name, tokenizer in made.items():
        (OUT / name).mkdir(parents=True, exist_ok=True)
        (OUT / name / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False) + "\n")
        for text in texts():
            for special in (False, True):
                tokenizer.encode_special_tokens = not special
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                case = {"tokenizer": name, "text": text, "special": special, "ids": ids,
                        "decoded": tokenizer.decode(ids, skip_special_tokens=False)}
                if not special or ids != cases[-1]["ids"]:
                    cases.append(case)
    words = json.loads(made["words"].to_str())["model"]["vocab"]
    (OUT / "words" / "vocab.txt").write_text("".join(f"{word}\n" for word in sorted(words, key=words.get)))
    write_ranks(cases)
    lines = [json.dumps(case, separators=(",", ":")) for case in cases]
    (OUT / "cases.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
