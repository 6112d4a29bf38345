"""Whole jobs on the CUDA backend's emulated threads, beside the same jobs on the CPU."""
import json
import os
import unittest
from pathlib import Path

from driver import ProgramTest

MODELS = Path(__file__).resolve().parent.parent / "data" / "models"
PLUGIN = Path(os.environ.get("BATCHMILL_BIN", "build/release/bin")) / "batchmill_cuda_emulated.so"
FAMILIES = ("llama", "llama-linear", "llama3", "mistral", "qwen2", "qwen2-yarn", "qwen3", "gpt2",
            "gemma3_text")
# Between log-probabilities of the two best tokens. The device computes in bf16 and the CPU in float32,
# which moves log-probabilities of these random models by up to 0.27, and by up to 0.25 on the CPU's
# own bf16 path, which leaves its float32 path nearly at the same places.
MARGIN = 0.3


def job_lines(model, num_lines, max_tokens=12):
    """Prompts of the model's goldens, whole and with other endings, so that prefixes are shared."""
    golden = json.loads((MODELS / model / "golden.json").read_text(encoding="utf-8"))
    return [{"custom_id": f"line-{i}", "method": "POST", "url": "/v1/completions",
             "body": {"model": "default", "max_tokens": max_tokens, "temperature": 0,
                      "ignore_eos": True, "return_token_ids": True, "logprobs": 2,
                      "prompt": golden[i % len(golden)]["prompt"] + [i] * (i // len(golden))}}
            for i in range(num_lines)]


@unittest.skipUnless(PLUGIN.exists(), "skipped: no libboost-context-dev, so no emulated device")
class EmulatedDeviceTest(ProgramTest):
    def run_job(self, model, lines, *options, env=None):
        """The choices by custom_id."""
        out = self.dir / "out.jsonl"
        self.batchmill("run", self.write_lines("in.jsonl", lines), "-o", out, "--model",
                       MODELS / model, "--fresh", *options, env=env)
        return {line["custom_id"]: line["response"]["body"]["choices"][0]
                for line in self.read_lines(out)}

    def devices_of(self, lines):
        """How many lines each device has run of the latest job."""
        out, _ = self.batchmill("list", "--json", "--limit", "1")
        job = json.loads(out)["id"]
        counts = {}
        for line in lines:
            out, _ = self.batchmill("explain", job, line["custom_id"], "--json")
            device = json.loads(out)["device"]
            counts[device] = counts.get(device, 0) + 1
        return counts

    def test_jobs_have_the_tokens_of_the_cpu(self):
        for model in FAMILIES:
            with self.subTest(model):
                lines = job_lines(model, 12)
                cpu = self.run_job(model, lines, "--device", "cpu", "--dtype", "f32")
                emulated = self.run_job(model, lines, "--device", "emulated")
                self.assertEqual(self.devices_of(lines[:1]), {"emulated:0": 1})
                self.assertEqual(emulated.keys(), cpu.keys())
                equal = [line for line in cpu
                         if emulated[line]["token_ids"] == cpu[line]["token_ids"]]
                self.assertGreaterEqual(len(equal), len(lines) // 2)
                for line in cpu.keys() - equal:
                    self.check_first_difference(line, cpu[line], emulated[line])

    def check_first_difference(self, line, cpu, emulated):
        """The CPU would nearly have said the same."""
        pairs = list(zip(cpu["token_ids"], emulated["token_ids"]))
        at = next(i for i, (expected, given) in enumerate(pairs) if expected != given)
        best, second = sorted(cpu["logprobs"]["top_logprobs"][at].values(), reverse=True)[:2]
        self.assertLess(best - second, MARGIN, f"{line}, token {at}")


class MissingDeviceTest(ProgramTest):
    def test_a_gpu_that_is_not_there_is_said_to_be(self):
        lines = self.write_lines("in.jsonl", job_lines("llama3", 1))
        for device in ("cuda:99", "cuda:0"):
            _, err = self.batchmill("run", lines, "-o", self.dir / "out.jsonl", "--model",
                                    MODELS / "llama3", "--device", device, exit_code=2,
                                    env={"BATCHMILL_PLUGINS": str(self.dir)})
            self.assertIn(f"device {device}: there is no {self.dir}/batchmill_cuda.so", err)
        self.assertFalse((self.dir / "out.jsonl").exists())

    def test_auto_says_why_it_is_the_cpu(self):
        daemon = self.start_daemon("--device", "auto", env={
            "BATCHMILL_DAEMON_LOG_LEVEL": "info", "BATCHMILL_PLUGINS": str(self.dir)})
        self.assertRegex(daemon.said, "runs on the CPU, not on a GPU: there is no "
                                      f"{self.dir}/batchmill_cuda.so\n")
        self.end(daemon)


if __name__ == "__main__":
    unittest.main()
