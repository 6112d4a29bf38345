"""`batchmill estimate`: what it says before a job against what the job's ledger says afterwards."""
import json
import tempfile
import unittest
from pathlib import Path

from driver import TINY_MODEL, ProgramTest, chat_line

PRICES = """
[prices]
version = "test-1"
currency = "EUR"
[prices.default]
input = "2"
cached_input = "0.5"
output = "8"
"""


class EstimateTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.config = self.dir / "batchmill.toml"
        self.config.write_text(PRICES)

    def estimate(self, lines, **kwargs):
        out, _ = self.batchmill("estimate", lines, "--json", "--model", TINY_MODEL, "--config",
                                self.config, **kwargs)
        return json.loads(out)

    def test_tokens_saving_and_cost_are_those_of_the_job(self):
        lines = [chat_line(f"l{i}", "one long beginning that all of them share, then " + "x" * i,
                           max_tokens=3, ignore_eos=True) for i in range(30)]
        lines += [chat_line("l0", "this id is taken"), {"custom_id": "bad"},
                  chat_line("c", "hot", temperature=9)]
        path = self.write_lines("in.jsonl", lines)
        estimate = self.estimate(path)
        self.assertEqual(estimate["lines"], {"total": 33, "valid": 30, "failed": 3})
        self.assertEqual(estimate["errors"], {"duplicate_custom_id": 1, "invalid_value": 1,
                                              "missing_field": 1})
        self.batchmill("run", path, "-o", "out.jsonl", "--model", TINY_MODEL, "--config",
                       self.config, exit_code=1)
        batch = json.loads(self.batchmill("list", "--json")[0])
        rows = map(json.loads, self.batchmill("costs", batch["id"], "--json")[0].splitlines())
        ledger, = [row for row in rows if row["model"]]  # lines that no model ran: a row of their own
        model, = estimate["models"]
        self.assertGreater(model["tokens"]["prompt_cached"], 0)
        self.assertEqual(model["tokens"]["prompt_cached"],
                         batch["batchmill"]["prefix"]["possible_tokens"])
        for key in ("prompt", "prompt_cached", "prompt_computed"):
            self.assertEqual(model["tokens"][key], ledger["tokens"][key], key)
        self.assertEqual(model["tokens"]["completion_at_most"], ledger["tokens"]["completion"])
        self.assertEqual(model["cost"]["total_at_most"], ledger["cost"]["total"])
        self.assertEqual(model["cost"]["prompt_cached"], ledger["cost"]["prompt_cached"])
        self.assertEqual((model["currency"], model["price_version"]), ("EUR", "test-1"))
        self.assertGreater(model["device_seconds"]["total_at_most"], 0)

    def test_nothing_is_stored_and_nothing_is_left(self):
        path = self.write_lines("in.jsonl", [chat_line("a", "x")])
        with tempfile.TemporaryDirectory() as scratch:
            self.estimate(path, env={"TMPDIR": scratch})
            self.assertEqual(list(Path(scratch).iterdir()), [])
        self.assertFalse(self.data.exists())

    def test_people_get_a_text(self):
        path = self.write_lines("in.jsonl", [chat_line("a", "x"), {"custom_id": "bad"}])
        out, err = self.batchmill("estimate", path, "--model", TINY_MODEL)
        self.assertIn("2 lines, 1 can run", out)
        self.assertIn("1 will fail: missing_field", out)
        # The time is no bound: other programs use the machine, too.
        self.assertRegex(out, r"(?m)^  time +[\d.]+ s on this machine when nothing else runs on it")
        self.assertEqual(err.splitlines()[0], f"reading {path}")
        self.assertIn("measuring model-q4_0", err.splitlines()[1])
        self.assertEqual(self.batchmill("estimate", path, "--model", TINY_MODEL, "--quiet")[1], "")

    def test_what_cannot_be_estimated_is_2(self):
        self.batchmill("estimate", self.write_lines("empty.jsonl", []), "--model", TINY_MODEL,
                       exit_code=2)
        self.batchmill("estimate", self.dir / "nothing.jsonl", "--model", TINY_MODEL, exit_code=2)


if __name__ == "__main__":
    unittest.main()
