"""Whole jobs through daemon and tool: counts, bills and prefix saving against sums of our own."""
import json
import os
import random
import unittest
from pathlib import Path

from driver import DEADLINE_S, ProgramTest, chat_line

REAL_MODEL = Path(os.environ.get(
    "BATCHMILL_MODEL", Path.home() / ".cache/batchmill/SmolLM2-135M-Instruct.Q4_1.gguf"))
WORDS = ("water stone river market garden letter winter engine harbor summer paper silver bridge "
         "window candle forest copper island mirror teacher").split()


def possible_tokens(prompts):
    """What one computation of every shared prefix saves: prompt tokens − nodes of their trie. The
    last token of a prompt is always computed, also when an equal prompt was there before."""
    trie = {}
    possible = 0
    for prompt in prompts:
        node, shared = trie, 0
        for token in prompt:
            shared += token in node
            node = node.setdefault(token, {})
        possible += min(shared, len(prompt) - 1)
    return possible


def passages(count, random_):
    """A job of the shape of a RAG summarization: one long system prompt, then a passage each."""
    system = "Summarize the passage in up to three sentences. " + " ".join(
        random_.choice(WORDS) for _ in range(120))
    for i in range(count):
        text = " ".join(random_.choice(WORDS) for _ in range(random_.randint(60, 120)))
        yield {"custom_id": f"p{i}", "method": "POST", "url": "/v1/chat/completions",
               "body": {"model": "default", "max_tokens": 16, "temperature": 0,
                        "return_token_ids": True,
                        "messages": [{"role": "system", "content": system},
                                     {"role": "user", "content": f"Passage {i}: {text}"}]}}


class LargeJobTest(ProgramTest):
    def run_job(self, lines):
        job = self.batchmill("submit", self.write_lines("in.jsonl", lines))[0].strip()
        watcher = self.start("batchmill", "watch", job)
        _, err = watcher.communicate(timeout=5 * DEADLINE_S)
        self.assertEqual(watcher.returncode, 0, err)
        return job

    def check(self, job, lines):
        """Every line once, sums equal to the ledger, saving as a trie says; returns the ratio."""
        self.batchmill("results", job, "-o", "out.jsonl")
        results = self.read_lines(self.dir / "out.jsonl")
        self.assertEqual([line["custom_id"] for line in results],
                         [line["custom_id"] for line in lines])
        batch = json.loads(self.batchmill("status", job, "--json")[0])
        self.assertEqual(batch["request_counts"],
                         {"total": len(lines), "completed": len(lines), "failed": 0})
        bodies = [line["response"]["body"] for line in results]
        usages = [body["usage"] for body in bodies]
        for body, usage in zip(bodies, usages):
            self.assertEqual(usage["prompt_tokens"], len(body["prompt_token_ids"]))
            self.assertEqual(usage["completion_tokens"],
                             sum(len(choice["token_ids"]) for choice in body["choices"]))
        sums = {
            "prompt": sum(usage["prompt_tokens"] for usage in usages),
            "prompt_cached": sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages),
            "completion": sum(usage["completion_tokens"] for usage in usages)}
        sums["prompt_computed"] = sums["prompt"] - sums["prompt_cached"]
        ledger = [json.loads(line) for line in self.batchmill("costs", job, "--json")[0].splitlines()]
        self.assertEqual(len(ledger), 1)
        self.assertEqual({key: ledger[0]["tokens"][key] for key in sums}, sums)
        by_line = [json.loads(line) for line in
                   self.batchmill("costs", job, "--by", "line", "--json")[0].splitlines()]
        self.assertEqual(len(by_line), len(lines))
        for key in sums:
            self.assertEqual(sum(row["tokens"][key] for row in by_line), sums[key], key)

        prefix = batch["batchmill"]["prefix"]
        self.assertEqual(prefix["possible_tokens"],
                         possible_tokens(body["prompt_token_ids"] for body in bodies))
        self.assertEqual(prefix["achieved_tokens"], sums["prompt_cached"])
        return prefix["achieved_tokens"] / prefix["possible_tokens"]

    def test_two_thousand_short_lines(self):
        self.start_daemon()
        random_ = random.Random(7)
        shared = "One beginning for all of them: "
        lines = [chat_line(f"l{i}", shared + " ".join(random_.choices(WORDS, k=3)),
                           return_token_ids=True) for i in range(2000)]
        # The first lines run before the last ones are planned, and this pool is smaller than the job.
        self.assertGreaterEqual(self.check(self.run_job(lines), lines), 0.95)

    def test_passages_with_the_real_model(self):
        if not REAL_MODEL.exists():
            self.skipTest(f"skipped: no model at {REAL_MODEL} (BATCHMILL_MODEL)")
        self.start_daemon(model=REAL_MODEL)
        count = int(os.environ.get("BATCHMILL_PASSAGES", "24"))
        lines = list(passages(count, random.Random(11)))
        ratio = self.check(self.run_job(lines), lines)
        self.assertGreaterEqual(ratio, 0.99)


if __name__ == "__main__":
    unittest.main()
