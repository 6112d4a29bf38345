#!/usr/bin/env python3
"""The quickstart's sample job is made of usable lines, and what it prints of results is right."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(tool, *arguments):
    return subprocess.run([sys.executable, ROOT / "tools" / tool, *arguments], check=True,
                          capture_output=True, text=True).stdout


class SampleJobTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.job = Path(self.folder.name) / "job.jsonl"

    def make(self, *options):
        run("make_sample_job", str(self.job), *options)
        return [json.loads(line) for line in self.job.read_text(encoding="utf-8").splitlines()]

    def test_lines_share_one_long_system_prompt(self):
        lines = self.make()
        self.assertGreaterEqual(len(lines), 20)
        self.assertLessEqual(len(lines), 32)
        systems = {line["body"]["messages"][0]["content"] for line in lines}
        self.assertEqual(len(systems), 1)
        self.assertGreater(len(systems.pop()), 800)
        self.assertEqual(len({line["custom_id"] for line in lines}), len(lines))
        for line in lines:
            passage = line["body"]["messages"][1]["content"]
            self.assertGreaterEqual(len(passage), 330, line["custom_id"])
            self.assertLessEqual(len(passage), 900, line["custom_id"])
            self.assertNotIn("`", passage)

    def test_is_the_same_every_time(self):
        self.assertEqual(self.make(), self.make())

    def test_takes_fewer_lines_and_a_model(self):
        lines = self.make("--lines", "5", "--model", "other")
        self.assertEqual(len(lines), 5)
        self.assertEqual({line["body"]["model"] for line in lines}, {"other"})

    def show(self, lines, summaries, count):
        """Summaries are pairs of text and finish reason, for the first lines."""
        results = Path(self.folder.name) / "results.jsonl"
        with results.open("w", encoding="utf-8") as out:
            for line, (text, reason) in zip(lines, summaries):
                choice = {"message": {"role": "assistant", "content": text},
                          "finish_reason": reason}
                out.write(json.dumps({
                    "custom_id": line["custom_id"],
                    "response": {"status_code": 200, "body": {"choices": [choice]}}}) + "\n")
        return run("show_summaries", str(self.job), str(results), "--count", str(count))

    def test_shows_summaries_that_exist(self):
        lines = self.make("--lines", "6")
        shown = self.show(lines, [(f"Summary number {i}.", "stop") for i in range(4)], 5)
        self.assertEqual(shown.count("Summary number"), 4)
        self.assertNotIn(lines[5]["custom_id"], shown)

    def test_prefers_whole_summaries_close_to_their_passages(self):
        lines = self.make("--lines", "4")
        own = [line["body"]["messages"][1]["content"].split(". ")[0] + "."
               for line in lines]
        shown = self.show(lines, [("Bananas grow slowly everywhere.", "stop"), (own[1], "length"),
                                  (own[2], "stop"), (own[3] * 4, "stop")], 1)
        self.assertIn(lines[2]["custom_id"], shown)
        for other in (0, 1, 3):
            self.assertNotIn(lines[other]["custom_id"] + "\n", shown)

    def test_states_the_prefix_saving(self):
        status = Path(self.folder.name) / "status.json"
        status.write_text(json.dumps({
            "usage": {"input_tokens": 1000},
            "batchmill": {"prefix": {"possible_tokens": 500, "achieved_tokens": 499,
                                     "ratio": 0.998}}}), encoding="utf-8")
        shown = run("show_summaries", "--prefix", str(status))
        self.assertIn("499 of 1,000 prompt tokens", shown)
        self.assertIn("achieved / possible 0.998", shown)


if __name__ == "__main__":
    unittest.main()
