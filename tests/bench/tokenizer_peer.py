#!/usr/bin/env python3
"""The same measurement as tokenizer_bench.cpp by Hugging Face tokenizers, for comparison.

  pip install tokenizers gguf
  python3 tests/bench/tokenizer_peer.py MODEL.gguf TEXT_FILE...

Prints one JSON line. The model's pre-tokenizer must be gpt-2 or smollm. The number of tokens must be
the one that the other program prints.
"""
import json
import os
import statistics
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import gguf  # noqa: E402
import tokenizers  # noqa: E402
from tokenizers import decoders, models, pre_tokenizers  # noqa: E402

TEXT_BYTES, REQUEST_BYTES, RUNS = 8_000_000, 4000, 5
NORMAL, CONTROL = 1, 3


def load(path):
    fields = gguf.GGUFReader(path).fields
    read = lambda key: fields["tokenizer.ggml." + key].contents()  # noqa: E731
    pieces, kinds = read("tokens"), read("token_type")
    vocab = {piece: i for i, piece in enumerate(pieces) if kinds[i] in (NORMAL, CONTROL)}
    merges = [tuple(merge.split(" ", 1)) for merge in read("merges")]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if read("pre") == "smollm":
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    elif read("pre") != "gpt-2":
        sys.exit("only gpt-2 and smollm are known here")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([piece for i, piece in enumerate(pieces) if kinds[i] == CONTROL])
    return tokenizer, read("pre")


def requests_of(paths):
    once = b"".join(open(path, "rb").read() for path in paths).decode("utf-8", "replace").encode()
    text = once * -(-TEXT_BYTES // len(once))
    while text:
        size = min(REQUEST_BYTES, len(text))
        while size < len(text) and text[size] & 0xC0 == 0x80:
            size += 1
        yield text[:size].decode()
        text = text[size:]


def main():
    tokenizer, pre = load(sys.argv[1])
    requests = list(requests_of(sys.argv[2:]))
    num_bytes = sum(len(request.encode()) for request in requests)
    times = []
    for _ in range(RUNS + 1):
        start = time.process_time()
        tokens = sum(len(tokenizer.encode(r, add_special_tokens=False).ids) for r in requests)
        times.append(time.process_time() - start)
    print(json.dumps({"tokenizers": tokenizers.__version__, "pre_tokenizer": pre,
                      "text_bytes": num_bytes,
                      "tokens": tokens,
                      "encode_mb_per_s": round(num_bytes / 1e6 / statistics.median(times[1:]), 1)}))


if __name__ == "__main__":
    main()
