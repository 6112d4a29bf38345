"""`batchmill run`: a whole job in one process."""
import gzip
import json
import os
import signal
import unittest
from decimal import Decimal

from driver import DEADLINE_S, TINY_MODEL, ProgramTest, chat_line, wait_until


class RunTest(ProgramTest):
    def run_job(self, lines, *args, **kwargs):
        return self.batchmill("run", lines, "-o", "out.jsonl", "--errors", "err.jsonl", "--model",
                              TINY_MODEL, *args, **kwargs)

    def test_results_come_in_input_order(self):
        lines = self.write_lines("in.jsonl", [chat_line(f"l{i}", f"number {i}", max_tokens=1 + i % 5)
                                              for i in range(40)])
        self.run_job(lines)
        out = self.read_lines(self.dir / "out.jsonl")
        self.assertEqual([line["custom_id"] for line in out], [f"l{i}" for i in range(40)])
        self.assertEqual((self.dir / "err.jsonl").read_text(), "")
        self.assertFalse((self.dir / "out.jsonl.part").exists())

    def test_failed_lines_go_to_their_file_and_make_it_1(self):
        lines = self.write_lines("in.jsonl", [chat_line("good", "x"),
                                              chat_line("bad", "x", temperature=9),
                                              chat_line("unknown", "x", frobnicate=1)])
        _, err = self.run_job(lines, exit_code=1)
        self.assertEqual([line["custom_id"] for line in self.read_lines(self.dir / "out.jsonl")],
                         ["good", "unknown"])
        failed = self.read_lines(self.dir / "err.jsonl")
        self.assertEqual([(line["custom_id"], line["error"]["code"], line["error"]["line"])
                          for line in failed], [("bad", "invalid_value", 2)])
        self.assertEqual(err.count("frobnicate"), 1)

    def test_failed_lines_are_counted_without_a_file_for_them(self):
        lines = self.write_lines("in.jsonl", [chat_line("good", "x"), {"custom_id": "bad"}])
        _, err = self.batchmill("run", lines, "-o", "out.jsonl", "--model", TINY_MODEL, exit_code=1)
        self.assertIn("1 failed lines", err)
        self.assertEqual(len(self.read_lines(self.dir / "out.jsonl")), 1)

    def test_all_failed_is_said_first(self):
        lines = self.write_lines("in.jsonl", [{"custom_id": "a"}, {"custom_id": "b"}])
        _, err = self.run_job(lines, exit_code=1)
        self.assertIn("all 2 lines failed", err.splitlines()[0])

    def test_the_same_again_is_the_same_job(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x", temperature=1)])
        self.run_job(lines)
        first = (self.dir / "out.jsonl").read_bytes()
        (self.dir / "out.jsonl").unlink()
        _, err = self.run_job(lines)
        self.assertIn("had finished before", err)
        self.assertEqual((self.dir / "out.jsonl").read_bytes(), first)
        self.run_job(lines, "--fresh")
        out, _ = self.batchmill("list", "--json")
        self.assertEqual(len(out.splitlines()), 2)

    def test_a_key_with_other_content_is_refused(self):
        one = self.write_lines("one.jsonl", [chat_line("a", "x")])
        other = self.write_lines("other.jsonl", [chat_line("a", "y")])
        self.run_job(one, "--idempotency-key", "k")
        self.run_job(one, "--idempotency-key", "k")
        self.run_job(other, "--idempotency-key", "k", exit_code=2)
        _, err = self.run_job(one, "--idempotency-key", "k", "--strict", exit_code=2)
        self.assertIn("with no --strict", err)
        _, err = self.run_job(one, "--idempotency-key", "k", "--name", "late", "--priority", "3")
        self.assertIn("keeps its name and priority", err)

    def test_input_that_is_refused(self):
        empty = self.dir / "empty.jsonl"
        empty.write_bytes(b"")
        _, err = self.run_job(empty, exit_code=2)
        self.assertIn("empty", err)
        blank = self.dir / "blank.jsonl"
        blank.write_bytes(b"\n \n")
        self.run_job(blank, exit_code=2)
        self.run_job(self.dir / "missing.jsonl", exit_code=2)
        self.assertFalse((self.dir / "out.jsonl").exists())

    def test_outputs_that_cannot_be(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x")])
        before = lines.read_bytes()
        for out in (lines, self.dir / "none" / "out.jsonl", self.dir, self.dir / "." / "in.jsonl"):
            self.batchmill("run", lines, "-o", out, "--model", TINY_MODEL, exit_code=2)
        (self.dir / "link").symlink_to("o")
        for errors in ("o", "./o", self.dir / "o", "link", "o.part"):
            self.batchmill("run", lines, "-o", "o", "--errors", errors, "--model", TINY_MODEL,
                           exit_code=2)
        self.assertEqual(lines.read_bytes(), before)
        self.assertFalse(self.data.exists())

    def test_a_full_disk_keeps_the_results(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x")])
        self.batchmill("run", lines, "-o", "/dev/full", "--model", TINY_MODEL, exit_code=5)
        _, err = self.run_job(lines)
        self.assertIn("had finished before", err)
        self.assertEqual(len(self.read_lines(self.dir / "out.jsonl")), 1)

    def test_a_file_s_greatest_size_is_a_full_disk(self):
        # The log of the store grows over it with the first lines.
        lines = self.write_lines("in.jsonl", [chat_line(f"l{i}", "x" * 200) for i in range(200)])
        limited = self.start("batchmill", "run", lines, "-o", "out.jsonl", "--model", TINY_MODEL,
                             under=("prlimit", "--fsize=20480:20480"))
        _, err = limited.communicate(timeout=DEADLINE_S)
        self.assertEqual(limited.returncode, 5, err)
        self.assertRegex(err, "(?m)^batchmill: no space left for the store.*File too large")
        self.assertNotIn("Assertion", err)
        self.run_job(lines)
        self.assertEqual(len(self.read_lines(self.dir / "out.jsonl")), 200)

    @unittest.skipIf("BATCHMILL_TEST_PATIENCE" in os.environ, "a sanitizer takes all addresses")
    def test_too_little_memory_is_said_and_never_aborts(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x")])
        ends = set()
        for mib in (200, 300, 400, 600, 900):
            limit = mib << 20
            limited = self.start("batchmill", "run", lines, "-o", "out.jsonl", "--model", TINY_MODEL,
                                 under=("prlimit", f"--as={limit}:{limit}"))
            _, err = limited.communicate(timeout=DEADLINE_S)
            ends.add(limited.returncode)
            # 127: the program's libraries cannot be loaded.
            self.assertIn(limited.returncode, (0, 2, 5, 127), f"{mib} MiB: {err}")
            if limited.returncode in (2, 5):
                self.assertRegex(err, "(?m)^batchmill: .*(memory|ulimit)")
        self.assertTrue(ends & {2, 5}, ends)

    def test_strict_runs_nothing_when_a_line_is_bad(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x"), {"custom_id": "b"}])
        _, err = self.run_job(lines, "--strict", exit_code=1)
        self.assertRegex(err, "line 2.*missing_field")
        self.assertEqual((self.dir / "out.jsonl").read_text(), "")
        batch = json.loads(self.batchmill("list", "--json")[0])
        self.assertEqual(batch["status"], "failed")
        self.assertEqual(batch["errors"]["data"][0]["line"], 2)

    def test_archives_and_standard_input(self):
        text = json.dumps(chat_line("a", "x")) + "\n"
        packed = self.dir / "in.jsonl.gz"
        packed.write_bytes(gzip.compress(text.encode()))
        self.run_job(packed)
        self.assertEqual(len(self.read_lines(self.dir / "out.jsonl")), 1)
        (self.dir / "out.jsonl").unlink()
        self.run_job("-", "--fresh", stdin=text)
        self.assertEqual(len(self.read_lines(self.dir / "out.jsonl")), 1)

    def test_a_cut_archive_never_ends_well(self):
        text = "".join(json.dumps(chat_line(f"l{i}", f"text {i * i}")) + "\n" for i in range(200))
        packed = gzip.compress(text.encode())
        cut = self.dir / "cut.jsonl.gz"
        cut.write_bytes(packed[: len(packed) // 2])
        self.run_job(cut, exit_code=1)
        batch = json.loads(self.batchmill("list", "--json")[0])
        self.assertEqual(batch["status"], "failed")
        self.assertEqual(batch["errors"]["data"][0]["code"], "truncated_input")

    def test_names_that_lines_may_use(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x", model="gpt-4o-mini")])
        self.run_job(lines, exit_code=1)
        self.run_job(lines, "--served-model-name", "other", "gpt-4o-mini")
        self.run_job(lines, "--served-model-name", "*")

    def test_status_results_and_costs_of_a_finished_run(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x"), chat_line("b", "y"),
                                              {"custom_id": "c"}])
        self.run_job(lines, "--name", "nightly", "--metadata", "team=x", exit_code=1)
        job = json.loads(self.batchmill("list", "--json")[0])["id"]
        batch = json.loads(self.batchmill("status", job, "--json")[0])
        self.assertEqual(batch["object"], "batch")
        self.assertEqual(batch["status"], "completed")
        self.assertEqual(batch["request_counts"], {"total": 3, "completed": 2, "failed": 1})
        self.assertEqual(batch["metadata"], {"team": "x"})
        self.assertEqual(batch["batchmill"]["name"], "nightly")
        self.assertEqual(batch["endpoint"], "/v1/chat/completions")

        out, err = self.batchmill("results", job)
        self.assertEqual(out, (self.dir / "out.jsonl").read_text())
        self.assertIn("1 failed", err)
        self.batchmill("results", job, "-o", "o", "--errors", "e", "--failed-input", "f")
        self.assertEqual((self.dir / "e").read_text(), (self.dir / "err.jsonl").read_text())
        self.assertEqual(self.read_lines(self.dir / "f"), [{"custom_id": "c"}])
        out, _ = self.batchmill("results", job, "--custom-id", "b")
        self.assertEqual(json.loads(out)["custom_id"], "b")
        self.batchmill("results", job, "--custom-id", "nobody", exit_code=4)
        rows = self.batchmill("results", job, "--format", "csv")[0].splitlines()
        self.assertEqual(rows[0],
                         "custom_id,status,text,finish_reason,prompt_tokens,completion_tokens,error")

        usage = [line["response"]["body"]["usage"] for line in self.read_lines(self.dir / "out.jsonl")]
        # One object per model; a line that names no model has none.
        nameless, total = sorted((json.loads(line) for line in
                                  self.batchmill("costs", job, "--json")[0].splitlines()),
                                 key=lambda row: row["model"] or "")
        self.assertIsNone(nameless["model"])
        self.assertEqual(nameless["lines"], {"completed": 0, "failed": 1})
        self.assertEqual(total["tokens"]["prompt"], sum(u["prompt_tokens"] for u in usage))
        self.assertEqual(total["tokens"]["completion"], sum(u["completion_tokens"] for u in usage))
        self.assertEqual(total["lines"], {"completed": 2, "failed": 0})
        by_line = [json.loads(line) for line in
                   self.batchmill("costs", job, "--by", "line", "--json")[0].splitlines()]
        self.assertEqual(sum(row["tokens"]["prompt"] for row in by_line), total["tokens"]["prompt"])
        self.assertEqual([row["custom_id"] for row in by_line], ["a", "b", "c"])

        life = json.loads(self.batchmill("explain", job, "a", "--json")[0])
        self.assertEqual(life["status"], "completed")
        self.assertEqual(life["device"], "cpu:0")
        failed = json.loads(self.batchmill("explain", job, "c", "--json")[0])
        self.assertEqual(failed["status"], "failed")
        record = self.read_lines(self.dir / "err.jsonl")[0]["error"]
        self.assertEqual(failed["error"], record["code"])
        self.assertEqual(failed["error_message"], record["message"])
        by_number = self.batchmill("explain", job, "--line", failed["line"], "--json")[0]
        self.assertEqual(json.loads(by_number), failed)
        self.batchmill("explain", job, "--line", 99, exit_code=4)
        self.batchmill("explain", job, exit_code=2)
        # What was not billed has no currency.
        self.assertIsNone(failed["cost"]["currency"])
        self.assertIn("cost.currency: -\n", self.batchmill("explain", job, "c")[0])
        self.assertIn(job, self.batchmill("status")[0])
        self.assertIn("completed", self.batchmill("status", job)[0])

    def test_prices_are_exact_decimals(self):
        config = self.dir / "priced.toml"
        config.write_text('[prices]\nversion = "v1"\ncurrency = "EUR"\n[prices.default]\n'
                          'input = "0.10"\ncached_input = "0.01"\noutput = "0.333333"\n',
                          encoding="utf-8")
        lines = self.write_lines("in.jsonl", [chat_line("a", "x")])
        self.run_job(lines, "--config", config)
        row = json.loads(self.batchmill("costs", "--json")[0])
        tokens = row["tokens"]
        self.assertEqual(row["price_version"], "v1")
        self.assertEqual(row["currency"], "EUR")
        # Picos: 0.10 per million tokens is 100,000 of 10^-12 units a token.
        want = tokens["prompt_computed"] * 100_000 + tokens["prompt_cached"] * 10_000 + \
            tokens["completion"] * 333_333
        got = row["cost"]["total"].split(".")
        self.run_job(self.write_lines("in.jsonl", [chat_line("b", "y")]), "--config", config)
        *rows, total = self.batchmill("costs")[0].splitlines()[1:]
        cost = [Decimal(row.split()[-2]) for row in (*rows, total)]
        self.assertEqual((cost[0] + cost[1], total.split()[-1]), (cost[2], "EUR"))
        self.assertEqual(int(got[0]) * 10**12 + int((got[1] if len(got) > 1 else "").ljust(12, "0")),
                         want)

    def test_costs_by_line_name_the_job_when_there_are_several(self):
        for name in ("a", "b"):
            self.run_job(self.write_lines("in.jsonl", [chat_line(name, name)]))
        jobs = [json.loads(line)["id"] for line in
                self.batchmill("list", "--json")[0].splitlines()]
        table = self.batchmill("costs", "--by", "line")[0].splitlines()
        self.assertEqual(table[0].split()[:4], ["JOB", "LINE", "CUSTOM_ID", "MODEL"])
        self.assertEqual({row.split()[0] for row in table[1:-1]}, set(jobs))
        rows = [json.loads(line) for line in
                self.batchmill("costs", "--by", "line", "--json")[0].splitlines()]
        self.assertEqual(len(rows), 2)  # the sum is for people
        total = table[-1].split()
        self.assertEqual(total[:6], ["total", "-", "-", "-", "2", "0"])
        self.assertEqual(int(total[6]), sum(row["tokens"]["prompt"] for row in rows))
        one = self.batchmill("costs", jobs[0], "--by", "line")[0].splitlines()
        self.assertEqual(len(one), 2)  # and not there for a single row
        self.assertEqual(one[0].split()[:3], ["LINE", "CUSTOM_ID", "MODEL"])

    def long_job(self):
        return self.write_lines("in.jsonl", [
            chat_line(f"l{i}", f"number {i}", max_tokens=200, ignore_eos=True) for i in range(400)])

    def jobs_so_far(self):
        out, _ = self.batchmill("list", "--json")
        batches = [json.loads(line) for line in out.splitlines()]
        return batches and batches[0]["request_counts"]["completed"] > 0 and batches[0]

    def test_killed_and_started_again_it_goes_on(self):
        lines = self.long_job()
        args = ("run", lines, "-o", "out.jsonl", "--errors", "err.jsonl", "--model", TINY_MODEL)
        process = self.start("batchmill", *args)
        wait_until("the store is there", lambda: (self.data / "lock").exists())
        wait_until("lines are finished", self.jobs_so_far)
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE_S)
        self.batchmill("results", self.jobs_so_far()["id"], "-o", "before.jsonl")
        before = {line["custom_id"]: line for line in self.read_lines(self.dir / "before.jsonl")}
        self.assertTrue(before)
        self.batchmill(*args)
        after = {line["custom_id"]: line for line in self.read_lines(self.dir / "out.jsonl")}
        self.assertEqual(len(after), 400)
        for custom_id, line in before.items():
            self.assertEqual(after[custom_id], line)
        costs = json.loads(self.batchmill("costs", "--json")[0])
        self.assertEqual(costs["tokens"]["completion"], 400 * 200)

    def test_an_interrupted_run_says_how_to_go_on(self):
        process = self.start("batchmill", "run", self.long_job(), "-o", "out.jsonl", "--model",
                             TINY_MODEL)
        wait_until("the store is there", lambda: (self.data / "lock").exists())
        wait_until("lines are finished", self.jobs_so_far)
        err = self.end(process, signal.SIGINT, exit_code=130)
        self.assertIn("goes on", err)
        self.assertFalse((self.dir / "out.jsonl").exists())

    def test_a_run_interrupted_before_its_job_is_stored_promises_no_lines(self):
        pipe = self.dir / "pipe"
        os.mkfifo(pipe)
        process = self.start("batchmill", "run", pipe, "-o", "out.jsonl", "--model", TINY_MODEL)
        with open(pipe, "w", encoding="utf-8"):  # open: it reads now
            err = self.end(process, signal.SIGINT, exit_code=130)
        self.assertIn("before a line ran; the same command goes on", err)
        self.assertNotIn("kept", err)

    def test_a_second_run_finds_the_store_locked(self):
        lines = self.long_job()
        process = self.start("batchmill", "run", lines, "-o", "out.jsonl", "--model", TINY_MODEL)
        wait_until("the store is there", lambda: (self.data / "lock").exists())
        wait_until("lines are finished", self.jobs_so_far)
        _, err = self.batchmill("run", lines, "-o", "o2", "--model", TINY_MODEL, exit_code=5)
        self.assertIn(str(process.pid), err)


if __name__ == "__main__":
    unittest.main()
