#!/usr/bin/env python3
"""The same measurement as tokenizer_bench.cpp by the reference libraries, for comparison.

  pip install tokenizers gguf tiktoken
  python3 tests/bench/tokenizer_peer.py MODEL TEXT_FILE...

MODEL is a tokenizer.json, a GGUF file (byte-level BPE, SentencePiece) or o200k_base.tiktoken (by
tiktoken). Prints one JSON line. The number of tokens must be the one that the other program prints.
"""
import base64
import json
import os
import statistics
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers  # noqa: E402
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers as pre  # noqa: E402

TEXT_BYTES, REQUEST_BYTES, RUNS = 8_000_000, 4000, 5
NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(read):
    pieces, kinds, name = read("tokens"), read("token_type"), read("pre")
    vocab = {piece: i for i, piece in enumerate(pieces) if kinds[i] in (NORMAL, CONTROL)}
    merges = [tuple(merge.split(" ", 1)) for merge in read("merges")]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=name == "llama-bpe"))
    splits = {"gpt-2": [], "smollm": [pre.Digits(individual_digits=True)],
              "llama-bpe": [pre.Split(Regex(WORDS % "{1,3}"), "isolated")],
              "qwen2": [pre.Split(Regex(WORDS % ""), "isolated")]}
    if name not in splits:
        sys.exit(f"pre-tokenizer {name} is not known here")
    by_itself = name in ("gpt-2", "smollm")
    steps = splits[name] + [pre.ByteLevel(add_prefix_space=False, use_regex=by_itself)]
    tokenizer.normalizer = normalizers.NFC() if name == "qwen2" else None
    tokenizer.pre_tokenizer = pre.Sequence(steps)
    tokenizer.add_special_tokens([piece for i, piece in enumerate(pieces) if kinds[i] == CONTROL])
    return tokenizer, name


def sentencepiece(read):
    """As the makers' tokenizer.json: merges are all ways to split an entry, best score first."""
    kinds, scores = read("token_type"), read("scores")
    pieces = [piece.replace(" ", "▁") if kind == USER_DEFINED else piece
              for piece, kind in zip(read("tokens"), kinds)]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    mergeable = {i for i, kind in enumerate(kinds) if kind in (NORMAL, USER_DEFINED)}
    merges = []
    for i in mergeable:
        piece, score = pieces[i], 1.0 if kinds[i] == USER_DEFINED else scores[i]
        for cut in range(1, len(piece)):
            parts = piece[:cut], piece[cut:]
            if all(vocab.get(part) in mergeable for part in parts):
                merges.append((-score, -cut, parts))
    merges = [parts for _, _, parts in sorted(merges)]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    prefix = [] if read("add_space_prefix") is False else [normalizers.Prepend("▁")]
    tokenizer.normalizer = normalizers.Sequence(prefix + [normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.ByteFallback()
    tokenizer.add_special_tokens([piece for piece, kind in zip(pieces, kinds) if kind == CONTROL])
    tokenizer.add_tokens([tokenizers.AddedToken(piece, normalized=False)
                          for piece, kind in zip(pieces, kinds) if kind == USER_DEFINED])
    return tokenizer, "SentencePiece"


def load(path):
    """A function from text to ids, and a name."""
    if path.endswith(".tiktoken"):
        import tiktoken
        import tiktoken_ext.openai_public as public
        public.load_tiktoken_bpe = lambda *args, **kwargs: {}
        lines = [line.split() for line in open(path, "rb") if line.strip()]
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
        encoding = tiktoken.Encoding("o200k", pat_str=public.o200k_base()["pat_str"],
                                     mergeable_ranks=ranks, special_tokens={})
        return encoding.encode_ordinary, "tiktoken " + tiktoken.__version__
    if path.endswith(".json"):
        tokenizer, name = tokenizers.Tokenizer.from_file(path), "tokenizer.json"
        tokenizer.no_padding()
        tokenizer.no_truncation()
    else:
        import gguf
        fields = gguf.GGUFReader(path).fields

        def read(key):
            field = fields.get("tokenizer.ggml." + key)
            return field.contents() if field else None
        tokenizer, name = (byte_level if read("model") == "gpt2" else sentencepiece)(read)
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids, name


def requests_of(paths):
    once = b"".join(open(path, "rb").read() for path in paths).decode("utf-8", "replace").encode()
    text = once * -(-TEXT_BYTES // len(once))
    start = 0
    while start < len(text):
        end = min(start + REQUEST_BYTES, len(text))
        while end < len(text) and text[end] & 0xC0 == 0x80:
            end += 1
        yield text[start:end].decode()
        start = end


def main():
    encode, name = load(sys.argv[1])
    requests = list(requests_of(sys.argv[2:]))
    num_bytes = sum(len(request.encode()) for request in requests)
    times = []
    for _ in range(RUNS + 1):
        began = time.process_time()
        tokens = sum(len(encode(request)) for request in requests)
        times.append(time.process_time() - began)
    print(json.dumps({"tokenizers": tokenizers.__version__, "by": name, "text_bytes": num_bytes,
                      "tokens": tokens,
                      "encode_mb_per_s": round(num_bytes / 1e6 / statistics.median(times[1:]), 1)}))


if __name__ == "__main__":
    main()
