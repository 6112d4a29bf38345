"""The commands that look after a store: backup, restore, compact, prune, resubmit, doctor."""
import json
import os
import signal
import stat
import subprocess
import time
import unittest

from driver import BIN, DEADLINE_S, TINY_MODEL, ProgramTest, chat_line, wait_until

NOBODY = 65534


class CareTest(ProgramTest):
    def finished_job(self, count=3, name="in.jsonl"):
        lines = self.write_lines(name, [chat_line(f"l{i}", f"{name} {i}") for i in range(count)])
        self.batchmill("run", lines, "-o", "out.jsonl", "--model", TINY_MODEL, "--name", name)
        return json.loads(self.batchmill("list", "--json", "--limit", "1")[0])["id"]

    def json_of(self, *args, **kwargs):
        return json.loads(self.batchmill(*args, "--json", "--quiet", **kwargs)[0])

    def jobs(self):
        return [json.loads(line)["id"] for line in self.batchmill("list", "--json")[0].splitlines()]

    def tables(self):
        return sorted((self.data / "store").glob("*.sst"))

    def damage(self, path, at=16):
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(b"\xde\xad\xbe\xef")

    def test_every_command_has_help_with_an_example(self):
        for command in ("backup", "restore", "compact", "prune", "resubmit"):
            out, _ = self.batchmill(command, "--help")
            self.assertIn(f"Example:\n  batchmill {command}", out)

    def test_backup_and_restore_without_a_daemon(self):
        job = self.finished_job()
        results, _ = self.batchmill("results", job)
        report = self.json_of("backup", "copy")
        self.assertGreater(report["bytes"], 0)
        self.assertEqual(stat.S_IMODE((self.dir / "copy").stat().st_mode), 0o700)
        again = self.json_of("backup", self.dir / "copy")
        self.assertLess(again["new_bytes"], report["new_bytes"])

        original, self.data = self.data, self.dir / "restored"
        _, err = self.batchmill("restore", "copy")
        self.assertIn("1 jobs with 3 lines and 3 results", err)
        self.assertEqual(self.batchmill("results", job)[0], results)
        self.assertEqual(stat.S_IMODE(self.data.stat().st_mode), 0o700)
        self.assertEqual(self.json_of("doctor")["ok"], True)
        # Into an empty directory only.
        _, err = self.batchmill("restore", "copy", exit_code=5)
        self.assertIn("not empty", err)
        self.data = original
        self.batchmill("restore", "copy", exit_code=5)

    def test_restore_refuses_what_is_no_whole_backup(self):
        self.finished_job()
        self.batchmill("backup", "copy")
        self.data = self.dir / "restored"
        self.batchmill("restore", self.dir, exit_code=5)
        self.batchmill("restore", "nowhere", exit_code=5)
        for table in (self.dir / "copy").rglob("*.sst"):
            self.damage(table)
        _, err = self.batchmill("restore", "copy", exit_code=5)
        self.assertIn(".sst", err)
        self.assertEqual([path.name for path in self.data.iterdir()], ["lock"])

    def test_backup_keeps_out_of_other_directories(self):
        self.batchmill("backup", "copy", exit_code=5)  # no store yet
        self.finished_job()
        self.batchmill("backup", self.dir, exit_code=2)
        self.batchmill("backup", "in.jsonl", exit_code=2)
        (self.dir / "link").symlink_to(self.data)
        for inside in (self.data, self.data / "copy", self.data / "store" / "x", "link/copy"):
            _, err = self.batchmill("backup", inside, exit_code=2)
            self.assertIn("data directory", err)

    def test_with_a_daemon_the_daemon_does_it(self):
        daemon = self.start_daemon(env={"BATCHMILL_DAEMON_LOG_LEVEL": "info"})
        lines = self.write_lines("in.jsonl", [chat_line(f"l{i}", f"n {i}", max_tokens=200,
                                                        ignore_eos=True) for i in range(2000)])
        job = self.batchmill("submit", lines)[0].strip()
        wait_until("lines are finished",
                   lambda: self.json_of("status", job)["request_counts"]["completed"] > 0)
        self.assertGreater(self.json_of("backup", "copy")["bytes"], 0)
        self.assertGreater(self.json_of("compact")["bytes_before"], 0)
        self.assertEqual(self.json_of("prune", "--older-than", "0s"),
                         {"jobs": 0, "lines": 0, "results": 0})  # it still runs
        self.batchmill("backup", self.dir, exit_code=2)
        self.batchmill("restore", "copy", exit_code=5)
        self.batchmill("cancel", job)
        wait_until("it is cancelled",
                   lambda: self.json_of("status", job)["status"] == "cancelled")
        wait_until("it is pruned", lambda: self.json_of("prune", "--older-than", "0s")["jobs"] == 1)
        self.batchmill("status", job, exit_code=4)
        log = self.end(daemon)
        self.assertRegex(log, r"(?m) info tables took [\d.]+ MB and take [\d.]+ MB now$")
        self.assertRegex(log, r"(?m) info removed 1 jobs with 2000 lines and \d+ results$")
        self.assertRegex(log, r"(?m) warning backup failed: ")
        self.assertEqual(self.json_of("doctor")["ok"], True)

        # The backup holds the job as it was: it goes on where it stood.
        self.data = self.dir / "restored"
        self.batchmill("restore", "copy")
        self.start_daemon()
        self.batchmill("watch", job)
        self.assertEqual(self.json_of("status", job)["request_counts"]["completed"], 2000)

    def test_prune_and_compact_without_a_daemon(self):
        self.assertEqual(self.json_of("prune", "--older-than", "1d")["jobs"], 0)
        self.assertEqual(self.json_of("compact")["bytes_after"], 0)
        self.finished_job()
        _, err = self.batchmill("prune", "--older-than", "1h")
        self.assertIn("removed 0 jobs", err)
        wait_until("a second has passed",
                   lambda: self.json_of("prune", "--older-than", "0s")["jobs"] == 1)
        self.assertEqual(self.jobs(), [])
        self.assertIn("writing every table", self.batchmill("compact")[1])
        self.batchmill("prune", "--older-than", "soon", exit_code=2)
        self.batchmill("prune", exit_code=2)

    def test_retention_removes_old_jobs(self):
        job = self.finished_job()
        self.start_daemon(env={"BATCHMILL_STORAGE_RETENTION": "7d"})
        self.batchmill("status", job)
        self.end(self.processes[-1])
        wait_until("a second has passed", lambda: self.json_of("status", job) and
                   self.json_of("status", job)["completed_at"] + 2 < int(time.time()))
        self.start_daemon(env={"BATCHMILL_STORAGE_RETENTION": "1s"})
        wait_until("the job is gone", lambda: not self.jobs())

    def test_resubmit_runs_the_failed_lines_again(self):
        self.start_daemon()
        lines = self.write_lines("in.jsonl", [
            chat_line("good", "x"), chat_line("hot", "x", temperature=9),
            chat_line("other", "x", model="nobody")])
        job = self.batchmill("submit", lines, "--name", "nightly", "--priority", "2",
                             "--metadata", "team=a=b")[0].strip()
        self.batchmill("watch", job, exit_code=1)
        out, err = self.batchmill("resubmit", job, "--failed", "--wait", exit_code=1)
        again = self.json_of("status", out.strip())
        self.assertEqual(again["request_counts"], {"total": 2, "completed": 0, "failed": 2})
        self.assertEqual(again["batchmill"]["name"], "nightly")
        self.assertEqual(again["batchmill"]["priority"], 2)
        self.assertEqual(again["metadata"], {"team": "a=b"})
        self.assertIn("2 lines", err)
        self.batchmill("results", job, "--failed-input", "f")
        self.batchmill("results", out.strip(), "--failed-input", "g")
        self.assertEqual((self.dir / "f").read_text(), (self.dir / "g").read_text())
        # A key makes it the same job.
        first = self.batchmill("resubmit", job, "--failed", "--idempotency-key", "k")[0]
        self.assertEqual(self.batchmill("resubmit", job, "--failed", "--idempotency-key", "k")[0],
                         first)
        self.batchmill("resubmit", job, exit_code=2)
        self.batchmill("resubmit", "batch_00000000000000000000000000", "--failed", exit_code=4)

    def test_resubmit_needs_failed_lines_an_end_and_a_daemon(self):
        job = self.finished_job()
        self.batchmill("resubmit", job, "--failed", exit_code=2)
        lines = self.write_lines("bad.jsonl", [{"custom_id": "a"}])
        self.batchmill("run", lines, "-o", "o", "--model", TINY_MODEL, exit_code=1)
        bad = self.jobs()[0]
        _, err = self.batchmill("resubmit", bad, "--failed", "--timeout", "1s", exit_code=3)
        self.assertRegex(err, r"batchmill resubmit .*--idempotency-key \w+")

    def test_doctor_rebuilds_what_can_be_rebuilt(self):
        job = self.finished_job(20)
        costs, _ = self.batchmill("costs", job, "--json")
        results, _ = self.batchmill("results", job, "--order", "completed")
        batch = self.json_of("status", job)
        report = self.json_of("doctor", "--rebuild")
        self.assertEqual(report["ok"], True)
        [detail] = [check["detail"] for check in report["checks"] if check["name"] == "rebuild"]
        self.assertIn("planned anew when a daemon starts", detail)
        self.assertEqual(self.batchmill("costs", job, "--json")[0], costs)
        self.assertEqual(self.batchmill("results", job, "--order", "completed")[0], results)
        self.assertEqual(self.json_of("status", job), batch)
        self.batchmill("results", job, "--custom-id", "l3")

    def test_doctor_rebuilds_over_damaged_tables_of_what_can_be_rebuilt(self):
        job = self.finished_job(20)
        costs, _ = self.batchmill("costs", job, "--json")
        self.batchmill("compact")
        damaged = []
        for table in self.tables():
            # The property column.family.name, its first letters shared with the one before it.
            properties = table.read_bytes()[-4000:]
            if any(b"name" + family in properties for family in (b"ledger", b"done", b"ids")):
                damaged.append(table.name)
                self.damage(table)
        self.assertTrue(damaged)
        out, _ = self.batchmill("doctor", exit_code=5)
        for name in damaged:
            self.assertIn(name, out)
        self.assertIn("--rebuild makes them anew", out)
        self.assertEqual(self.json_of("doctor", "--rebuild")["ok"], True)
        self.assertEqual(self.batchmill("costs", job, "--json")[0], costs)
        self.batchmill("results", job, "--custom-id", "l3")

    def test_doctor_names_tables_that_only_a_backup_brings_back(self):
        job = self.finished_job(20)
        self.batchmill("backup", "copy")
        results, _ = self.batchmill("results", job)
        for table in self.tables():
            self.damage(table)
        out, _ = self.batchmill("doctor", exit_code=5)
        self.assertIn(self.tables()[0].name, out)
        self.assertIn("restore the latest backup", out)
        self.batchmill("results", job, exit_code=5)
        self.batchmill("doctor", "--rebuild", exit_code=5)
        self.data = self.dir / "restored"
        self.batchmill("restore", "copy")
        self.assertEqual(self.batchmill("results", job)[0], results)

    def test_a_damaged_log_is_named_and_kept_up_to_the_damage(self):
        daemon = self.start_daemon()
        lines = self.write_lines("in.jsonl", [chat_line(f"l{i}", "x") for i in range(50)])
        job = self.batchmill("submit", lines, "--wait")[0].strip()
        daemon.send_signal(signal.SIGKILL)
        daemon.wait(DEADLINE_S)
        log = max((self.data / "store").glob("*.log"), key=lambda path: path.stat().st_size)
        self.damage(log, log.stat().st_size * 2 // 3)
        for command in (("list",), ("status", job), ("prune", "--older-than", "1d")):
            _, err = self.batchmill(*command, exit_code=5)
            self.assertIn(log.name, err)
        second = self.start("batchmilld", "--model", TINY_MODEL)
        _, err = second.communicate(timeout=DEADLINE_S)
        self.assertEqual(second.returncode, 5, err)
        self.assertIn(log.name, err)
        out, _ = self.batchmill("doctor", exit_code=5)
        self.assertIn(log.name, out)
        out, _ = self.batchmill("doctor", "--rebuild")
        self.assertIn(log.name, out)
        # What was before the damage is there and goes on.
        self.start_daemon()
        self.batchmill("watch", job)
        self.assertEqual(self.json_of("status", job)["request_counts"]["completed"], 50)

    def test_a_directory_that_cannot_be_written_can_be_read(self):
        job = self.finished_job()
        self.dir.chmod(0o755)
        for path in [self.data, *self.data.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)

        def as_reader(*args):
            options = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
            return subprocess.run([str(BIN / "batchmill"), *args, "--data", str(self.data)],
                                  capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                                  env=self.env, cwd="/", **options)
        try:
            probe = as_reader("--version")
        except PermissionError:
            self.skipTest("skipped: the program's folder is closed to other users")
        self.assertEqual(probe.returncode, 0)
        done = as_reader("results", job)
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 3), done.stderr)
        for command in (("prune", "--older-than", "0s"), ("compact",), ("backup", "/tmp/none")):
            done = as_reader(*command)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn("Permission denied", done.stderr)
        for path in [self.data, *self.data.rglob("*")]:
            path.chmod(0o700)


if __name__ == "__main__":
    unittest.main()
