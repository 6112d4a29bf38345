"""Embeddings of encoders by `batchmill run`, against the values of the models' own software."""
import base64
import json
import math
import os
import struct
import unittest
from pathlib import Path

from driver import ProgramTest

SOURCE = Path(__file__).resolve().parent.parent.parent
REFERENCE = Path(os.environ.get("BATCHMILL_REFERENCE", SOURCE.parent / "shared" / "reference"))
BERT = REFERENCE / "models" / "bert"
# The folder of all-MiniLM-L6-v2 as tools/fetch_vocabularies puts it there.
MINILM = Path(os.environ.get("BATCHMILL_VOCABS")
              or Path.home() / ".cache/batchmill/vocabularies") / "minilm"
# Of transformers: the mean of the last hidden states, scaled to unit length.
MINILM_GOLDEN = SOURCE / "tests/data/minilm.json"


def embedding_line(custom_id, value, **body):
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings",
            "body": {"model": "default", "input": value, **body}}


class EmbeddingsTest(ProgramTest):
    def run_job(self, model, lines, *options, exit_code=0):
        """Bodies, or errors, by custom_id."""
        out, errors = self.dir / "out.jsonl", self.dir / "errors.jsonl"
        self.batchmill("run", self.write_lines("in.jsonl", lines), "-o", out, "--errors", errors,
                       "--model", model, "--fresh", *options, exit_code=exit_code)
        bodies = {line["custom_id"]: line["response"]["body"] for line in self.read_lines(out)}
        failures = {line["custom_id"]: line["error"] for line in self.read_lines(errors)}
        return bodies, failures

    def assert_close(self, got, expected, tolerance):
        self.assertEqual(len(got), len(expected))
        worst = max(abs(a - b) for a, b in zip(got, expected))
        self.assertLess(worst, tolerance)

    def test_a_model_without_a_tokenizer_takes_token_ids(self):
        if not BERT.is_dir():
            self.skipTest(f"skipped: no {BERT} (BATCHMILL_REFERENCE)")
        golden = [case for case in json.loads((BERT / "golden.json").read_text())
                  if isinstance(case["input"][0], int)]
        lines = [embedding_line(f"{i}", case["input"]) for i, case in enumerate(golden)]
        lines.append(embedding_line("all", [case["input"] for case in golden]))
        lines.append(embedding_line("base64", golden[0]["input"], encoding_format="base64"))
        lines.append(embedding_line("text", "words"))
        lines.append(embedding_line("long", [5] * 257))
        lines.append({**embedding_line("chat", "x"), "url": "/v1/chat/completions",
                      "body": {"messages": [{"role": "user", "content": "x"}]}})
        for dtype, tolerance in (("f32", 1e-5), ("bf16", 0.05)):
            bodies, failures = self.run_job(BERT, lines, "--dtype", dtype, exit_code=1)
            for i, case in enumerate(golden):
                body = bodies[f"{i}"]
                self.assertEqual(body["usage"], {"prompt_tokens": len(case["input"]),
                                                 "total_tokens": len(case["input"])})
                self.assert_close(body["data"][0]["embedding"], case["embedding"], tolerance)
                self.assert_close(bodies["all"]["data"][i]["embedding"], case["embedding"],
                                  tolerance)
                self.assertEqual(bodies["all"]["data"][i]["index"], i)
            raw = base64.b64decode(bodies["base64"]["data"][0]["embedding"])
            self.assert_close(struct.unpack(f"<{len(raw) // 4}f", raw), golden[0]["embedding"],
                              tolerance)
            self.assertEqual({name: error["code"] for name, error in failures.items()},
                             {"text": "invalid_value", "long": "context_length_exceeded",
                              "chat": "unsupported_url"})
            self.assertIn("257", failures["long"]["message"])
            self.assertIn("256", failures["long"]["message"])

    def test_texts_of_a_sentence_encoder(self):
        if not MINILM.is_dir():
            self.skipTest(f"skipped: no {MINILM} (BATCHMILL_VOCABS)")
        golden = json.loads(MINILM_GOLDEN.read_text(encoding="utf-8"))
        lines = [embedding_line(f"{i}", case["text"]) for i, case in enumerate(golden)]
        bodies, failures = self.run_job(MINILM, lines, "--dtype", "f32")
        self.assertEqual(failures, {})
        for i, case in enumerate(golden):
            body = bodies[f"{i}"]
            self.assertEqual(body["usage"]["prompt_tokens"], case["tokens"])
            vector = body["data"][0]["embedding"]
            self.assert_close(vector, case["embedding"], 1e-5)
            self.assertAlmostEqual(math.fsum(x * x for x in vector), 1.0, places=5)
        (ledger,) = [json.loads(row) for row in
                     self.batchmill("costs", "--json")[0].splitlines()]
        self.assertEqual(ledger["tokens"]["completion"], 0)
        self.assertEqual(ledger["tokens"]["prompt"], sum(case["tokens"] for case in golden))
        self.assertEqual(ledger["tokens"]["prompt_cached"], 0)


if __name__ == "__main__":
    unittest.main()
