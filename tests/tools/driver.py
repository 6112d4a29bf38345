"""What the tests of the programs share: a data directory of their own, both programs, a tiny model."""
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

BIN = Path(os.environ.get("BATCHMILL_BIN", "build/release/bin"))
TINY_MODEL = Path(__file__).resolve().parent.parent / "data/models/llama3/model-q4_0.gguf"
TINY_ENCODER = Path(__file__).resolve().parent.parent / "data/models/bert"
# A sanitizer slows the programs down: its preset has more patience.
DEADLINE_S = 60 * int(os.environ.get("BATCHMILL_TEST_PATIENCE", "1"))


def chat_line(custom_id, text, **body):
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions",
            "body": {"model": "default", "messages": [{"role": "user", "content": text}],
                     "max_tokens": 4, "temperature": 0, **body}}


def wait_until(what, condition):
    """Polls, with a deadline: there is no event to wait for in another process's files."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {DEADLINE_S} s")


class ProgramTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="bm_"))
        self.data = self.dir / "data"
        self.processes = []
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith("BATCHMILL_")}

    def tearDown(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def write_lines(self, name, lines):
        path = self.dir / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return path

    def read_lines(self, path):
        return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]

    def batchmill(self, *args, exit_code=0, stdin=None, env=None):
        """Runs the tool on this test's data directory; returns (stdout, stderr)."""
        command = [str(BIN / "batchmill"), *map(str, args), "--data", str(self.data)]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=self.dir,
                              timeout=DEADLINE_S, env={**self.env, **(env or {})}, check=False)
        self.assertEqual(done.returncode, exit_code,
                         f"{' '.join(command)}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        return done.stdout, done.stderr

    def start(self, program, *args, env=None, under=()):
        """`under`: a command that starts the program, as `prlimit` does."""
        command = [*under, str(BIN / program), *map(str, args), "--data", str(self.data)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, cwd=self.dir,
                                   env={**self.env, **(env or {})})
        self.processes.append(process)
        return process

    def start_daemon(self, *args, env=None, model=TINY_MODEL, under=()):
        """A batchmilld that has said that it is ready; `said` is all that it has said until then."""
        process = self.start("batchmilld", "--model", model, *args, under=under,
                             env={"BATCHMILL_DAEMON_LOG_LEVEL": "warn", **(env or {})})
        end = time.monotonic() + DEADLINE_S
        said = ""
        while "ready" not in said:
            readable, _, _ = select.select([process.stderr], [], [], max(0, end - time.monotonic()))
            self.assertTrue(readable, f"the daemon is not ready: {said}")
            line = process.stderr.readline()
            self.assertTrue(line, f"the daemon ended: {said}")
            said += line
        process.said = said
        return process

    def end(self, process, number=signal.SIGTERM, exit_code=0):
        process.send_signal(number)
        _, stderr = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, exit_code, stderr)
        return stderr
