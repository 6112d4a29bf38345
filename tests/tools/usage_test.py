"""Commands that need no job: help, wrong usage, models."""
import json
import subprocess
import unittest

from driver import BIN, TINY_ENCODER, TINY_MODEL, ProgramTest, chat_line

COMMANDS = ["submit", "run", "status", "list", "watch", "results", "costs", "cancel", "pause",
            "resume", "resubmit", "explain", "tokenize", "render", "estimate", "inspect", "doctor",
            "backup", "restore", "compact", "prune", "keys", "bench"]
NOT_BUILT = ["summarize"]


class HelpTest(ProgramTest):
    def test_every_command_has_help_with_an_example(self):
        for command in COMMANDS:
            out, _ = self.batchmill(command, "--help")
            self.assertIn("Example:\n", out, command)
            self.assertIn(f"batchmill {command}", out)

    def test_help_names_exactly_what_is_built(self):
        out, _ = self.batchmill("--help")
        for command in COMMANDS:
            self.assertRegex(out, rf"(?m)^  {command} ")
        for command in NOT_BUILT:
            self.assertNotRegex(out, rf"(?m)^  {command} ")

    def test_what_is_not_built_says_so(self):
        for command in NOT_BUILT:
            _, err = self.batchmill(command, "x", exit_code=2)
            self.assertIn("not built yet", err)

    def test_a_command_that_is_not_there_is_named(self):
        for args in (["submitt", "job"], ["query", "--help"], ["--json", "query"],
                     ["--config", "list", "query", "--help"]):
            _, err = self.batchmill(*args, exit_code=2)
            word = "submitt" if "submitt" in args else "query"
            self.assertEqual(err, f"batchmill: there is no command '{word}'; batchmill --help "
                                  "names them\n")
        _, err = self.batchmill("keys", "give", exit_code=2)
        self.assertIn("there is no command 'keys give'; batchmill keys --help", err)

    def test_both_programs_have_a_version(self):
        for program in ("batchmill", "batchmilld"):
            done = subprocess.run([BIN / program, "--version"], capture_output=True, text=True,
                                  check=True)
            self.assertRegex(done.stdout, rf"^{program} \d+\.\d+\.\d+\n$")


class UsageTest(ProgramTest):
    def test_wrong_usage_is_2_and_stores_nothing(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x")])
        for args in ([], ["nonsense"], ["run"], ["run", lines], ["run", lines, "-o"],
                     ["run", lines, "-o", "out", "--order", "random"], ["submit", lines, "--deadline", "soon"],
                     ["submit", lines, "--priority", "11"], ["submit", lines, "--metadata", "novalue"],
                     ["list", "--status", "wonderful"], ["costs", "--by", "moon"],
                     ["run", lines, "-o", "out", "--model", TINY_MODEL, "--dtype", "fp8"],
                     ["run", lines, "-o", "out", "--model", TINY_MODEL, "--device", "tpu:0"],
                     ["run", lines, "-o", "out", "--model", TINY_MODEL, "--threads", "many"],
                     ["run", lines, "-o", "out"]):
            _, err = self.batchmill(*args, exit_code=2)
            self.assertTrue(err.strip(), args)
            self.assertFalse(self.data.exists(), args)

    def test_an_empty_value_is_wrong_usage(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x")])
        run = ["run", lines, "--model", TINY_MODEL]
        for args in (run + ["-o", ""], run + ["-o", "out", "--errors", ""],
                     run + ["-o", "out", "--idempotency-key", ""],
                     ["results", "x", "-o", ""], ["list", "--endpoint", ""], ["list", "--config", ""]):
            _, err = self.batchmill(*args, exit_code=2)
            self.assertIn("without a value", err)
        for command in ("status", "results", "costs", "cancel", "pause", "watch", "resubmit"):
            _, err = self.batchmill(command, "", exit_code=2)
            self.assertIn("names no job", err)
        self.batchmill("explain", "", "a", exit_code=2)
        self.assertFalse(self.data.exists())

    def test_text_that_is_no_utf8_is_wrong_usage(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x")])
        run = ["run", str(lines), "-o", "out", "--model", str(TINY_MODEL), "--data", str(self.data)]
        for args in (run + ["--idempotency-key", b"k\xff"], run + ["--name", b"\xc3"],
                     run + ["--metadata", b"a=\xed\xa0\x80"],
                     ["keys", "allow", "KEY", "--name", b"\xfe", "--data", str(self.data)],
                     ["results", "x", "--custom-id", b"\x80", "--data", str(self.data)]):
            done = subprocess.run([BIN / "batchmill", *args], capture_output=True, check=False)
            self.assertEqual(done.returncode, 2, args)
            self.assertIn(b"no UTF-8", done.stderr)
        self.assertFalse(self.data.exists())

    def test_what_is_no_endpoint_is_wrong_usage(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x")])
        for endpoint in ("zebra", "tcp://127.0.0.1", "ipc://", "tcp://127.0.0.1:99999"):
            for args in (["list"], ["submit", lines]):
                _, err = self.batchmill(*args, "--endpoint", endpoint, exit_code=2)
                self.assertIn(endpoint, err)

    def test_data_that_cannot_be_written_is_5(self):
        for args in (["inspect", TINY_MODEL], ["tokenize", "--model", TINY_MODEL, "x"],
                     ["doctor", "--model", TINY_MODEL]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([BIN / "batchmill", *args, "--data", self.data], stdout=full,
                                      stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 5, args)
            self.assertIn("standard output", done.stderr)
        for program in ("batchmill", "batchmilld"):
            for flag in ("--help", "--version"):
                with open("/dev/full", "wb") as full:
                    done = subprocess.run([BIN / program, flag], stdout=full,
                                          stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(done.returncode, 5, (program, flag))

    def test_a_bad_config_is_one_line_with_its_place(self):
        config = self.dir / "bad.toml"
        config.write_text("[engine]\nthreads = \"all\"\n", encoding="utf-8")
        _, err = self.batchmill("list", "--config", config, exit_code=2)
        self.assertEqual(err.count("\n"), 1)
        self.assertRegex(err, r"bad\.toml:2.*threads")

    def test_models_that_cannot_be_used(self):
        lines = self.write_lines("in.jsonl", [chat_line("a", "x")])
        text = self.dir / "text.gguf"
        text.write_text("this is no model\n" * 9, encoding="utf-8")
        _, err = self.batchmill("run", lines, "-o", "out", "--model", "none.gguf", exit_code=4)
        self.assertIn("none.gguf", err)
        _, err = self.batchmill("run", lines, "-o", "out", "--model", text, exit_code=2)
        self.assertIn("text.gguf", err)
        self.assertFalse(self.data.exists())

    def test_queries_on_nothing(self):
        out, _ = self.batchmill("list", "--json")
        self.assertEqual(out, "")
        out, _ = self.batchmill("costs", "--json")
        self.assertEqual(out, "")
        for command in (["status", "batch_00000000000000000000000000"], ["results", "x"],
                        ["costs", "x"], ["explain", "x", "y"], ["watch", "x"]):
            self.batchmill(*command, exit_code=4)
        self.assertFalse(self.data.exists())


class TokenizeTest(ProgramTest):
    def test_ids_and_back(self):
        out, _ = self.batchmill("tokenize", "--model", TINY_MODEL, "the sack", "--json")
        answer = json.loads(out)
        self.assertEqual(len(answer["ids"]), len(answer["pieces"]))
        back, _ = self.batchmill("tokenize", "--model", TINY_MODEL, "--decode",
                                 " ".join(map(str, answer["ids"])), "--json")
        self.assertEqual(json.loads(back), {"text": "the sack"})

    def test_special_tokens_only_on_request(self):
        plain, _ = self.batchmill("tokenize", "--model", TINY_MODEL, "<|im_end|>", "--json")
        special, _ = self.batchmill("tokenize", "--model", TINY_MODEL, "<|im_end|>", "--special",
                                    "--json")
        self.assertGreater(len(json.loads(plain)["ids"]), 1)
        self.assertEqual(json.loads(special)["ids"], [2])

    def test_lines(self):
        texts = self.write_lines("texts.jsonl", [{"text": "a b"}, {"text": ""}, {"text": "é\u2028"}])
        ids, _ = self.batchmill("tokenize", "--model", TINY_MODEL, "--jsonl", texts)
        (self.dir / "ids.jsonl").write_text(ids, encoding="utf-8")
        back, _ = self.batchmill("tokenize", "--model", TINY_MODEL, "--jsonl", "ids.jsonl", "--decode")
        self.assertEqual([json.loads(line)["text"] for line in back.split("\n")[:-1]],
                         ["a b", "", "é\u2028"])
        bad = self.write_lines("bad.jsonl", [{"text": "a"}, {"text": 7}])
        _, err = self.batchmill("tokenize", "--model", TINY_MODEL, "--jsonl", bad, exit_code=2)
        self.assertIn("bad.jsonl:2", err)


class RenderTest(ProgramTest):
    def test_a_model_s_own_template(self):
        out, _ = self.batchmill("render", "--model", TINY_MODEL,
                                stdin='[{"role": "user", "content": "Hi"}]')
        self.assertEqual(out, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")

    def test_lines_with_templates_of_their_own(self):
        lines = self.write_lines("lines.jsonl", [
            {"template": "{{ a + 1 }}", "a": 1},
            {"template": "{{ strftime_now('%Y-%m-%d %H:%M') }}", "now": "2025-03-09T14:05:06"},
            {"template": "{{ raise_exception('no') }}"},
            {"template": "{% if %}"}])
        out, _ = self.batchmill("render", "--jsonl", lines)
        answers = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(answers[0], {"text": "2"})
        self.assertEqual(answers[1], {"text": "2025-03-09 14:05"})
        self.assertEqual(answers[2], {"error": {"kind": "raise_exception", "message": "no"}})
        self.assertEqual(answers[3]["error"]["kind"], "syntax")

    def test_a_line_that_is_no_object_has_its_answer_too(self):
        lines = self.dir / "lines.jsonl"
        lines.write_text('{"template": "a"}\n{\n[]\n{"template": "b"}\n', encoding="utf-8")
        out, _ = self.batchmill("render", "--jsonl", lines)
        answers = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(answers[0], {"text": "a"})
        self.assertEqual([answer["error"]["kind"] for answer in answers[1:3]],
                         ["invalid_json_line"] * 2)
        self.assertEqual(answers[3], {"text": "b"})

    def test_a_template_file(self):
        (self.dir / "t.jinja").write_text("[{{ messages[0].content }}]", encoding="utf-8")
        out, _ = self.batchmill("render", "--template", "t.jinja",
                                stdin='{"messages": [{"role": "user", "content": "<|im_end|>"}]}')
        self.assertEqual(out, "[<|im_end|>]")


class DoctorTest(ProgramTest):
    def test_names_what_is_wrong(self):
        out, _ = self.batchmill("doctor", "--model", TINY_MODEL, "--json")
        self.assertTrue(json.loads(out)["ok"])
        out, _ = self.batchmill("doctor", "--model", "none.gguf", "--json", exit_code=4)
        report = json.loads(out)
        self.assertFalse(report["ok"])
        self.assertEqual([c["name"] for c in report["checks"] if c["status"] == "failed"],
                         ["model none"])

    def test_an_encoder_needs_no_room_for_a_kv_cache(self):
        out, _ = self.batchmill("doctor", "--model", TINY_ENCODER)
        self.assertRegex(out, r"(?m)^ok +model bert: bert, \d+ layers, on cpu:0, .*an encoder")


class BenchTest(ProgramTest):
    def test_gives_rates_beside_the_peak(self):
        out, _ = self.batchmill("bench", "--model", TINY_MODEL, "--runs", 1, "--prefill-tokens", 32,
                                "--decode-sequences", 4, "--decode-tokens", 4, "--json")
        report = json.loads(out)
        self.assertGreater(report["gemm_peak_gflops"], 0)
        for kind in ("prefill", "single_decode", "decode", "shared_decode"):
            self.assertGreater(report[kind]["tokens_per_second"], 0)
            self.assertGreater(report[kind]["attention"]["gflops"], 0)
            self.assertAlmostEqual(sum(report[kind]["time_shares"].values()), 1, places=6)
            self.assertGreater(report[kind]["share_of_roofline"], 0)
        # All but a sequence's last blocks are full.
        slots = report["kv_slots"]
        self.assertGreaterEqual(slots["held"], 4 * 64)
        self.assertLess(slots["empty"], 4 * slots["block_size_tokens"])
        self.assertTrue(report["gemm_implementations"])

    def test_draws_the_roofline(self):
        out, _ = self.batchmill("bench", "--model", TINY_MODEL, "--runs", 1, "--prefill-tokens", 32,
                                "--decode-sequences", 4, "--decode-tokens", 4, "--threads", 1)
        self.assertIn("roofline:", out)
        chart = [line.split("|", 1)[1] for line in out.splitlines() if "|" in line]
        self.assertGreaterEqual(len(chart), 10)
        # Marks may lie on one another; the last one is on top.
        self.assertEqual(sum("S" in line for line in chart), 1, chart)
        self.assertIn("scheduling and sampling", out)

    def test_says_what_the_types_in_use_cost(self):
        out, _ = self.batchmill("bench", "--quality", "--model", TINY_MODEL, "--dtype", "int8",
                                "--kv-dtype", "int8", "--threads", 1, "--json")
        report = json.loads(out)
        self.assertGreater(report["predicted_tokens"], 5000)
        first, last = report["runs"][0], report["runs"][-1]
        self.assertEqual((first["dtype"], first["kv_dtype"]), ("f32", "f32"))
        self.assertEqual((last["dtype"], last["kv_dtype"]), ("int8", "int8"))
        self.assertEqual(first["best_token_agreement"], 1)
        # Wrong products would cost far more than a tenth.
        self.assertLess(abs(last["loss_percent_vs_f32"]), 10)
        self.assertGreater(last["best_token_agreement"], 0.8)


if __name__ == "__main__":
    unittest.main()
