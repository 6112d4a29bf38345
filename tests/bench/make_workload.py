#!/usr/bin/env python3
"""Writes a seeded job file of the shape of a RAG summarization, from the licences that every Debian
machine has (/usr/share/common-licenses).

  tests/bench/make_workload.py OUT.jsonl --lines 128 --families 1

families: distinct system prompts, over which the lines are spread in turn; 0: no two prompts share
more than the template's own beginning. Every line asks for exactly --max-tokens tokens.
"""
import argparse
import json
import random
from pathlib import Path

INSTRUCTION = ("Summarize the passage in one short paragraph of plain English. Say only what the "
               "passage says and keep the names it uses. Background:\n")


def corpus():
    files = sorted(path for path in Path("/usr/share/common-licenses").iterdir()
                   if path.is_file() and not path.is_symlink())
    return "\n\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)


def slice_of(text, random_, size):
    begin = random_.randrange(len(text) - size)
    return text[begin:begin + size]


def make_lines(args):
    text = corpus()
    random_ = random.Random(args.seed)
    count = args.families or args.lines
    systems = []
    for number in range(count):
        head = f"Collection {number}. " if args.families != 1 else ""
        systems.append(head + INSTRUCTION + slice_of(text, random_, args.system_chars))
    lines = []
    for number in range(args.lines):
        passage = slice_of(text, random_, args.passage_chars)
        messages = [{"role": "system", "content": systems[number % count]},
                    {"role": "user", "content": f"Passage {number}:\n{passage}\n\nSummary:"}]
        body = {"model": "default", "messages": messages, "temperature": 0,
                "max_tokens": args.max_tokens, "min_tokens": args.max_tokens, "ignore_eos": True}
        lines.append({"custom_id": f"line-{number:06d}", "method": "POST",
                      "url": "/v1/chat/completions", "body": body})
    if args.shuffle:
        random_.shuffle(lines)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("--lines", type=int, default=128)
    parser.add_argument("--families", type=int, default=1)
    parser.add_argument("--system-chars", type=int, default=1800)
    parser.add_argument("--passage-chars", type=int, default=1600)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--shuffle", action="store_true")
    args = parser.parse_args()
    with open(args.output, "w", encoding="utf-8") as file:
        for line in make_lines(args):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
