"""batchmilld and the commands that talk to it."""
import json
import os
import signal
import socket
import stat
import subprocess
import unittest
from decimal import Decimal
from pathlib import Path

from driver import BIN, DEADLINE_S, TINY_MODEL, ProgramTest, chat_line, wait_until


class DaemonTest(ProgramTest):
    def status(self, job):
        return json.loads(self.batchmill("status", job, "--json")[0])

    def long_lines(self, count=400):
        return self.write_lines("long.jsonl", [
            chat_line(f"l{i}", f"number {i}", max_tokens=200, ignore_eos=True) for i in range(count)])

    def submit(self, *args):
        out, _ = self.batchmill("submit", *args)
        self.assertRegex(out, r"^batch_[0-9a-hjkmnp-tv-z]{26}\n$")
        return out.strip()

    def test_a_job_from_submit_to_results(self):
        daemon = self.start_daemon()
        lines = self.write_lines("in.jsonl", [chat_line(f"l{i}", "x") for i in range(20)])
        job = self.submit(lines, "--name", "first", "--wait")
        self.assertEqual(self.status(job)["status"], "completed")
        out, _ = self.batchmill("results", job)
        self.assertEqual(len(out.splitlines()), 20)
        self.batchmill("watch", job)
        self.assertEqual(self.end(daemon), "")
        # Without a daemon the store answers.
        self.assertEqual(self.status(job)["request_counts"]["completed"], 20)
        self.assertEqual(self.batchmill("results", job)[0], out)

    def test_the_same_key_is_the_same_job(self):
        self.start_daemon()
        lines = self.write_lines("in.jsonl", [chat_line("a", "x")])
        other = self.write_lines("other.jsonl", [chat_line("b", "x")])
        first = self.submit(lines, "--idempotency-key", "k")
        self.assertEqual(self.submit(lines, "--idempotency-key", "k"), first)
        self.batchmill("submit", other, "--idempotency-key", "k", exit_code=2)
        self.assertNotEqual(self.submit(lines), first)
        self.assertNotEqual(self.submit(lines, "--idempotency-key", "k", "--fresh"), first)

    def test_cancel_keeps_what_is_finished(self):
        self.start_daemon()
        job = self.submit(self.long_lines())
        wait_until("lines are finished",
                   lambda: self.status(job)["request_counts"]["completed"] > 0)
        self.batchmill("cancel", job)
        batch = wait_until("it is cancelled", lambda: self.status(job)["status"] == "cancelled" and
                           self.status(job))
        self.assertEqual(batch["request_counts"]["completed"] + batch["request_counts"]["failed"], 400)
        self.batchmill("results", job, "-o", "o", "--errors", "e")
        done = [line["custom_id"] for line in self.read_lines(self.dir / "o")]
        failed = self.read_lines(self.dir / "e")
        self.assertEqual({line["error"]["code"] for line in failed}, {"batch_cancelled"})
        self.assertEqual(sorted(done + [line["custom_id"] for line in failed]),
                         sorted(f"l{i}" for i in range(400)))
        _, err = self.batchmill("cancel", job)
        self.assertIn("cancelled", err)
        self.batchmill("watch", job, exit_code=1)

    def test_cancelling_a_finished_job_says_so(self):
        self.start_daemon()
        job = self.submit(self.write_lines("in.jsonl", [chat_line("a", "x")]), "--wait")
        _, err = self.batchmill("cancel", job)
        self.assertIn("ended already", err)

    def test_an_ended_job_cannot_be_paused_or_resumed(self):
        daemon = self.start_daemon()
        job = self.submit(self.write_lines("in.jsonl", [chat_line("a", "x")]), "--wait")
        for command in ("pause", "resume"):
            out, err = self.batchmill(command, job, "--json", exit_code=2)
            self.assertEqual((out, err), ("", f"batchmill: {command}: {job} has ended: completed\n"))
        self.end(daemon)
        _, err = self.batchmill("pause", job, exit_code=2)
        self.assertIn("has ended: completed", err)

    def test_pause_and_resume(self):
        self.start_daemon()
        job = self.submit(self.long_lines(100))
        self.batchmill("pause", job)
        self.assertTrue(self.status(job)["batchmill"]["paused"])
        self.batchmill("resume", job)
        self.batchmill("watch", job)
        self.assertEqual(self.status(job)["request_counts"]["completed"], 100)

    def test_killed_and_restarted_it_goes_on_while_watched(self):
        daemon = self.start_daemon()
        job = self.submit(self.long_lines())
        watcher = self.start("batchmill", "watch", job)
        wait_until("lines are finished",
                   lambda: self.status(job)["request_counts"]["completed"] > 0)
        daemon.send_signal(signal.SIGKILL)
        daemon.wait(DEADLINE_S)
        self.start_daemon()
        _, err = watcher.communicate(timeout=DEADLINE_S)
        self.assertEqual(watcher.returncode, 0, err)
        self.assertEqual(len(self.batchmill("results", job)[0].splitlines()), 400)

    def test_a_stop_puts_unfinished_lines_back(self):
        daemon = self.start_daemon(env={"BATCHMILL_DAEMON_DRAIN_TIMEOUT_S": "0"})
        job = self.submit(self.long_lines())
        wait_until("the job runs", lambda: self.status(job)["status"] == "in_progress")
        self.end(daemon)
        self.assertEqual(self.status(job)["status"], "in_progress")
        self.start_daemon()
        self.batchmill("watch", job)

    def test_what_other_jobs_left_in_the_cache_is_counted_apart(self):
        self.start_daemon()
        lines = self.write_lines("in.jsonl", [chat_line("a", "a long beginning " * 8)])
        self.submit(lines, "--wait")
        job = self.submit(lines, "--wait")
        cached = self.status(job)["usage"]["input_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, 0)
        self.assertIn(f"0 of 0 tokens saved that its own lines share, {cached} more were cached "
                      "from other jobs\n", self.batchmill("status", job)[0])

    def test_submit_interrupted_while_it_watches_names_the_job(self):
        self.start_daemon()
        watcher = self.start("batchmill", "submit", self.long_lines(), "--watch")
        job = watcher.stdout.readline().strip()
        err = self.end(watcher, signal.SIGINT, exit_code=130)
        self.assertIn(f"{job} is stored and goes on", err)
        self.assertIn(f"\n  batchmill watch {job} --data {self.data}\n", err)
        self.assertNotIn("batchmill submit", err)

    def test_a_stop_is_in_the_log(self):
        daemon = self.start_daemon(env={"BATCHMILL_DAEMON_LOG_LEVEL": "info",
                                        "BATCHMILL_DAEMON_DRAIN_TIMEOUT_S": "7"})
        log = self.end(daemon)
        self.assertRegex(log, r"(?m)^\S+ info stopping: .*finish, all within 7 s; .*second signal")
        self.assertRegex(log.splitlines()[-1], r"^\S+ info stopped: ")

    def test_follow_gives_every_line_once(self):
        self.start_daemon()
        job = self.submit(self.long_lines(100))
        out, _ = self.batchmill("results", job, "--follow")
        self.assertEqual(sorted(json.loads(line)["custom_id"] for line in out.splitlines()),
                         sorted(f"l{i}" for i in range(100)))

    def test_without_a_daemon(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x")])
        _, err = self.batchmill("submit", lines, "--timeout", "1s", exit_code=3)
        self.assertRegex(err, r"batchmill submit \S*in\.jsonl --idempotency-key \w+ --data")
        _, err = self.batchmill("submit", lines, "--watch", "--timeout", "1s", exit_code=3)
        self.assertRegex(err, r"batchmill submit .* --watch --data")
        self.batchmill("pause", "batch_00000000000000000000000000", exit_code=3)

    def test_everything_is_private_to_the_user(self):
        self.start_daemon()
        self.assertEqual(stat.S_IMODE(self.data.stat().st_mode), 0o700)
        for name in ("control.sock", "queue.sock"):
            self.assertEqual(stat.S_IMODE((self.data / name).stat().st_mode), 0o600, name)

    def test_tells_the_service_manager(self):
        path = self.dir / "notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(path))
            manager.settimeout(DEADLINE_S)
            daemon = self.start_daemon(env={"NOTIFY_SOCKET": str(path)})
            self.assertEqual(manager.recv(100), b"READY=1")
            self.end(daemon)
            self.assertEqual(manager.recv(100), b"STOPPING=1")

    def test_reads_prices_again(self):
        config = self.dir / "c.toml"

        def write(version, price):
            config.write_text(f'[prices]\nversion = "{version}"\n[prices.default]\n'
                              f'input = "{price}"\n', encoding="utf-8")

        def bill(job):
            return json.loads(self.batchmill("costs", job, "--json")[0])
        write("old", 1)
        daemon = self.start_daemon("--config", config)
        lines = self.write_lines("in.jsonl", [chat_line("a", "x")])
        first = self.submit(lines, "--wait")
        billed = bill(first)
        self.assertGreater(Decimal(billed["cost"]["total"]), 0)
        write("new", 3)
        os.kill(daemon.pid, signal.SIGHUP)
        self.assertRegex(daemon.stderr.readline(), r"^\d{4}-\S+ info prices and log level read again")
        second = self.submit(lines, "--wait")
        # What is billed stays as it is; the same line costs three times as much from now on.
        self.assertEqual(billed["price_version"], "old")
        self.assertEqual(bill(first), billed)
        self.assertEqual(bill(second)["price_version"], "new")
        self.assertEqual(Decimal(bill(second)["cost"]["total"]),
                         3 * Decimal(billed["cost"]["total"]))

    def test_the_store_s_files_are_reserved(self):
        # 512 for the store and 256 of the process's own leave places for 16 clients, each with one
        # that waits behind it.
        daemon = self.start_daemon(under=("prlimit", "--nofile=100:800"))

        def open_files():
            return len(os.listdir(f"/proc/{daemon.pid}/fd"))
        limits = Path(f"/proc/{daemon.pid}/limits").read_text(encoding="utf-8")
        self.assertRegex(limits, r"Max open files +800 +800")
        idle = open_files()
        clients = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(100)]
        try:
            for client in clients:
                client.setblocking(False)
                client.connect(str(self.data / "control.sock"))
            wait_until("clients are served", lambda: open_files() >= idle + 16)
            with self.assertRaises(subprocess.TimeoutExpired):  # all places are taken
                subprocess.run([BIN / "batchmill", "list", "--data", self.data],
                               capture_output=True, timeout=2, check=False)
            self.assertLessEqual(open_files(), idle + 2 * 16)
        finally:
            for client in clients:
                client.close()
        job = self.submit(self.write_lines("in.jsonl", [chat_line("a", "x")]), "--wait")
        self.assertEqual(self.status(job)["status"], "completed")
        self.assertIn("at most 16 clients", daemon.said)

    def test_doctor_refuses_what_a_daemon_would(self):
        config = self.dir / "config.toml"
        for text, said in (('[queue]\nendpoint = "tcp://0.0.0.0:5559"\n', "server key"),
                           ('[queue]\nendpoint = "tcp://127.0.0.1:99999"\n', "1 to 65535")):
            config.write_text(text, encoding="utf-8")
            out, _ = self.batchmill("doctor", "--config", config, exit_code=2)
            self.assertIn(said, out)
            daemon = self.start("batchmilld", "--model", TINY_MODEL, "--config", config)
            _, err = daemon.communicate(timeout=DEADLINE_S)
            self.assertEqual(daemon.returncode, 2)
            self.assertIn(said, err)
        config.write_text('[prices]\nversion = "1"\n[prices."smoll"]\ninput = "1"\n')
        out, _ = self.batchmill("doctor", "--config", config, "--model", TINY_MODEL)
        self.assertRegex(out, r'warning  config: .*\[prices\."smoll"\]: no configured model')

    def test_names_do_not_act_on_the_terminal(self):
        self.start_daemon()
        name = "ev\x1b[31mil\nname\u009b"
        line = chat_line("a", "x", **{"odd\x1b[2Jfield": 1})
        job = self.submit(self.write_lines("in.jsonl", [line]), "--name", name, "--wait")
        for args in (["list"], ["status"], ["status", job], ["watch", job], ["explain", job, "a"]):
            out, err = self.batchmill(*args)
            self.assertNotRegex(out + err, "[\x00-\x09\x0b-\x1f\x7f-\x9f]", args)
        self.assertIn(r"ev\x1b[31mil\nname\u009b", self.batchmill("list")[0])
        self.assertIn(r"odd\x1b[2Jfield", self.batchmill("watch", job)[1])
        self.assertEqual(self.status(job)["batchmill"]["name"], name)

    def test_too_few_files_are_said_at_once(self):
        process = self.start("batchmilld", "--model", TINY_MODEL,
                             under=("prlimit", "--nofile=770:770"))
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 2)
        self.assertIn("ulimit -n", err)

    def test_a_second_daemon_finds_the_store_locked(self):
        daemon = self.start_daemon()
        second = self.start("batchmilld", "--model", TINY_MODEL)
        _, err = second.communicate(timeout=DEADLINE_S)
        self.assertEqual(second.returncode, 5)
        self.assertIn(str(daemon.pid), err)

    def test_a_daemon_without_a_model_says_so(self):
        process = self.start("batchmilld")
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 2)
        self.assertIn("--model", err)


if __name__ == "__main__":
    unittest.main()
