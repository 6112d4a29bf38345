"""The daemon with the real model is killed in mid-job; a client of another language is served."""
import json
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from driver import DEADLINE_S, ProgramTest, chat_line, wait_until

REAL_MODEL = Path(os.environ.get(
    "BATCHMILL_MODEL", Path.home() / ".cache/batchmill/SmolLM2-135M-Instruct.Q4_1.gguf"))
PYTHON = os.environ.get("BATCHMILL_PYTHON", sys.executable)
PUSH_AND_READ = Path(__file__).resolve().parent.parent / "queue/push_and_read.py"


class RealModelTest(ProgramTest):
    def status(self, job):
        return json.loads(self.batchmill("status", job, "--json")[0])

    def test_a_kill_loses_no_line_and_bills_none_twice(self):
        if not REAL_MODEL.exists():
            self.skipTest(f"skipped: no model at {REAL_MODEL} (BATCHMILL_MODEL)")
        daemon = self.start_daemon(model=REAL_MODEL)
        # Of different lengths, so that some are finished while others run.
        lines = [chat_line(f"l{i}", f"Count from {i}.", max_tokens=8 + 8 * i, min_tokens=8 + 8 * i,
                           ignore_eos=True) for i in range(24)]
        job = self.batchmill("submit", self.write_lines("in.jsonl", lines))[0].strip()
        wait_until("some lines are finished, some are running",
                   lambda: self.status(job)["request_counts"]["completed"] >= 2)
        daemon.send_signal(signal.SIGKILL)
        daemon.wait(DEADLINE_S)
        left = self.status(job)  # from the store itself: nobody holds it
        self.assertEqual(left["status"], "in_progress")
        self.assertLess(left["request_counts"]["completed"], 24)
        self.start_daemon(model=REAL_MODEL)
        self.batchmill("watch", job)
        results = [json.loads(line) for line in self.batchmill("results", job)[0].splitlines()]
        self.assertEqual([line["custom_id"] for line in results], [f"l{i}" for i in range(24)])
        usages = [line["response"]["body"]["usage"] for line in results]
        self.assertEqual([usage["completion_tokens"] for usage in usages],
                         [8 + 8 * i for i in range(24)])
        (ledger,) = [json.loads(row) for row in
                     self.batchmill("costs", job, "--json")[0].splitlines()]
        self.assertEqual(ledger["lines"], {"completed": 24, "failed": 0})
        for name in ("prompt", "completion"):
            self.assertEqual(ledger["tokens"][name],
                             sum(usage[f"{name}_tokens"] for usage in usages))


class OtherClientTest(ProgramTest):
    def test_a_script_pushes_a_job_and_reads_it_back(self):
        if subprocess.run([PYTHON, "-c", "import zmq"], stderr=subprocess.DEVNULL,
                          check=False).returncode != 0:
            self.skipTest(f"skipped: {PYTHON} has no zmq module (Debian: python3-zmq)")
        self.start_daemon()
        lines = self.write_lines("in.jsonl", [chat_line(f"l{i}", f"number {i}") for i in range(50)])
        done = subprocess.run([PYTHON, PUSH_AND_READ, f"ipc://{self.data}/queue.sock", lines],
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(json.loads(line)["custom_id"] for line in done.stdout.splitlines()),
                         sorted(f"l{i}" for i in range(50)))


if __name__ == "__main__":
    unittest.main()
