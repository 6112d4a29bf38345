"""Whole jobs on the CUDA backend's emulated threads, beside the same jobs on the CPU."""
import json
import os
import re
import unittest
from pathlib import Path

from driver import ProgramTest, wait_until

MODELS = Path(__file__).resolve().parent.parent / "data" / "models"
PLUGIN = Path(os.environ.get("BATCHMILL_BIN", "build/release/bin")) / "batchmill_cuda_emulated.so"
FAMILIES = ("llama", "llama-linear", "llama3", "mistral", "qwen2", "qwen2-yarn", "qwen3", "gpt2",
            "gemma3_text")
LOSS = "3 steps in a row failed: the emulated device is lost"
# Between log-probabilities of the two best tokens. The device computes in bf16 and the CPU in float32,
# which moves log-probabilities of these random models by up to 0.27, and by up to 0.25 on the CPU's
# own bf16 path, which leaves its float32 path nearly at the same places.
MARGIN = 0.3
# Where tokens part, the CPU's two best were within 0.045, and at least 75 % of a job's lines have no
# such place.
CLOSE_CALL = 0.1
FEWEST_EQUAL = 0.7
# FP8 keys and values are so many times as far from what they should be as those in int8
# (cuda_byte_cache_test prints what both cost).
FP8_FACTOR = 5


def job_lines(model, num_lines, max_tokens=12):
    """Prompts of the model's goldens, whole and with other endings, so that prefixes are shared."""
    golden = json.loads((MODELS / model / "golden.json").read_text(encoding="utf-8"))
    return [{"custom_id": f"line-{i}", "method": "POST", "url": "/v1/completions",
             "body": {"model": "default", "max_tokens": max_tokens, "temperature": 0,
                      "ignore_eos": True, "return_token_ids": True, "logprobs": 5,
                      "prompt": golden[i % len(golden)]["prompt"] + [i] * (i // len(golden))}}
            for i in range(num_lines)]


def largest_error(expected, given):
    """Of log-probabilities, as long as the tokens are the same."""
    pairs = zip(expected["token_ids"], given["token_ids"])
    equal = next((i for i, (a, b) in enumerate(pairs) if a != b), len(expected["token_ids"]))
    return max((abs(a - b) for a, b in zip(expected["logprobs"]["token_logprobs"][:equal],
                                           given["logprobs"]["token_logprobs"])), default=0)


@unittest.skipUnless(PLUGIN.exists(), "skipped: no libboost-context-dev, so no emulated device")
class EmulatedDeviceTest(ProgramTest):
    def run_job(self, model, lines, *options, env=None, exit_code=0):
        """The choices by custom_id."""
        out = self.dir / "out.jsonl"
        _, self.err = self.batchmill("run", self.write_lines("in.jsonl", lines), "-o", out, "--model",
                                     MODELS / model, *options, env=env, exit_code=exit_code)
        if exit_code != 0:
            self.assertFalse(out.exists())
            return None
        written = self.read_lines(out)
        out.unlink()
        self.assertEqual([line["custom_id"] for line in written],
                         [line["custom_id"] for line in lines])
        return {line["custom_id"]: line["response"]["body"]["choices"][0] for line in written}

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

    def test_tokens_are_drawn_on_the_device_as_on_the_host(self):
        """Log-probabilities bring the logits to the host, which then samples."""
        lines = job_lines("llama3", 12)
        kinds = ({"temperature": 0}, {"temperature": 0.8}, {"temperature": 1.1, "top_p": 0.7},
                 {"temperature": 0.9, "top_k": 12}, {"temperature": 1, "frequency_penalty": 0.7},
                 {"temperature": 1, "logit_bias": {"9": 5}, "presence_penalty": 1.2})
        for i, line in enumerate(lines):
            # Nothing is shared: whose rows come when is the same in both jobs.
            prompt = [(i * 37 + j * 11) % 300 + 3 for j in range(5 + 4 * i)]
            line["body"].update(kinds[i % len(kinds)], seed=i, prompt=prompt)
        sampled = self.run_job("llama3", lines, "--device", "emulated")
        for line in lines:
            del line["body"]["logprobs"]
        drawn = self.run_job("llama3", lines, "--device", "emulated")
        self.assertEqual({line: choice["token_ids"] for line, choice in drawn.items()},
                         {line: choice["token_ids"] for line, choice in sampled.items()})

    def test_jobs_have_the_tokens_of_the_cpu(self):
        for model in FAMILIES:
            with self.subTest(model):
                lines = job_lines(model, 12)
                cpu = self.run_job(model, lines, "--device", "cpu", "--dtype", "f32")
                emulated = self.run_job(model, lines, "--device", "emulated")
                self.assertEqual(self.devices_of(lines[:1]), {"emulated:0": 1})
                self.check_tokens(cpu, emulated)

    def test_keys_and_values_in_bytes_say_nearly_the_same(self):
        for model in ("qwen2", "gemma3_text"):
            lines = job_lines(model, 12)
            on_cpu = ("--device", "cpu", "--dtype", "f32", "--kv-dtype")
            cpu = self.run_job(model, lines, *on_cpu, "f32")
            rounded = self.run_job(model, lines, *on_cpu, "int8")
            cost = max(largest_error(cpu[line], rounded[line]) for line in cpu)
            for kv_dtype, factor in (("int8", 1), ("fp8", FP8_FACTOR)):
                with self.subTest(f"{model}, {kv_dtype}"):
                    emulated = self.run_job(model, lines, "--device", "emulated", "--kv-dtype",
                                            kv_dtype)
                    self.assertEqual(self.devices_of(lines[:1]), {"emulated:0": 1})
                    margin = MARGIN + factor * cost
                    for line in cpu:
                        self.assertLess(largest_error(cpu[line], emulated[line]), margin, line)
                        if emulated[line]["token_ids"] != cpu[line]["token_ids"]:
                            self.check_first_difference(line, cpu[line], emulated[line], margin)

    def check_tokens(self, cpu, emulated):
        equal = [line for line in cpu if emulated[line]["token_ids"] == cpu[line]["token_ids"]]
        self.assertGreaterEqual(len(equal), FEWEST_EQUAL * len(cpu))
        for line in cpu.keys() - equal:
            self.check_first_difference(line, cpu[line], emulated[line])

    def check_first_difference(self, line, cpu, emulated, margin=CLOSE_CALL):
        """The CPU would nearly have said the same."""
        pairs = list(zip(cpu["token_ids"], emulated["token_ids"]))
        at = next(i for i, (expected, given) in enumerate(pairs) if expected != given)
        text = emulated["logprobs"]["tokens"][at]
        best = cpu["logprobs"]["token_logprobs"][at]
        self.assertLess(best - cpu["logprobs"]["top_logprobs"][at][text], margin, f"{line}, token {at}")

    def test_two_devices_share_a_job(self):
        lines = job_lines("qwen2", 48)
        cpu = self.run_job("qwen2", lines, "--device", "cpu", "--dtype", "f32")
        two = self.run_job("qwen2", lines, "--device", "emulated",
                           env={"BATCHMILL_EMULATED_DEVICES": "2"})
        self.check_tokens(cpu, two)
        counts = self.devices_of(lines)
        self.assertEqual(counts.keys(), {"emulated:0", "emulated:1"})
        self.assertGreaterEqual(min(counts.values()), 8)

    def test_a_lost_device_leaves_its_lines_to_the_other(self):
        lines = job_lines("qwen2", 48)
        cpu = self.run_job("qwen2", lines, "--device", "cpu", "--dtype", "f32")
        rest = self.run_job("qwen2", lines, "--device", "emulated",
                            env={"BATCHMILL_EMULATED_DEVICES": "2",
                                 "BATCHMILL_EMULATED_LOST": "1:4"})
        self.check_tokens(cpu, rest)
        self.assertIn("a step on emulated:1 failed (1 in a row): the emulated device is lost", self.err)
        self.assertIn(f"the device emulated:1 is lost ({LOSS}): the lines of qwen2 run on the 1 that go "
                      "on", self.err)

    def as_gpus(self, **faults):
        """An environment in which the emulated devices are found as cuda:0, cuda:1 …"""
        folder = self.dir / "gpus"
        if not folder.exists():
            folder.mkdir()
            for name in ("batchmill_cuda.so", "libcuda.so.1"):  # the plugin, and what stands for the driver
                (folder / name).symlink_to(PLUGIN.resolve())
        return {"BATCHMILL_PLUGINS": str(folder), "LD_LIBRARY_PATH": str(folder), **faults}

    def test_auto_goes_on_on_the_cpu_when_the_last_gpu_is_lost(self):
        lines = job_lines("llama3", 24)
        cpu = self.run_job("llama3", lines, "--device", "cpu", "--dtype", "f32")
        rest = self.run_job("llama3", lines, "--dtype", "bf16",
                            env=self.as_gpus(BATCHMILL_EMULATED_LOST="0:6"))
        self.check_tokens(cpu, rest)
        self.assertIn(f"the device cuda:0 is lost ({LOSS}): the lines of llama3 run on cpu:0 until the "
                      "process is started anew\n", self.err)
        counts = self.devices_of(lines)
        self.assertEqual(sum(counts.values()), len(lines))
        self.assertGreaterEqual(counts.get("cpu:0", 0), 1, counts)
        self.assertLessEqual(counts.keys(), {"cpu:0", "cuda:0"})
        again = self.run_job("llama3", lines, "--dtype", "bf16", env=self.as_gpus())
        self.assertIn("it had finished before", self.err)
        self.assertEqual(again, rest)

    def test_the_cpu_does_not_take_over_a_cache_in_fp8(self):
        lines = job_lines("llama3", 12)
        fp8 = ("--kv-dtype", "fp8", "--name", "fp8")
        self.run_job("llama3", lines, *fp8, exit_code=5,
                     env=self.as_gpus(BATCHMILL_EMULATED_LOST="0:6"))
        self.assertIn("the CPU cannot take its place: the model llama3 cannot run on the CPU: kv_dtype "
                      "fp8 is for GPUs", self.err)
        self.run_job("llama3", lines, *fp8, env=self.as_gpus())
        out, _ = self.batchmill("estimate", self.write_lines("in.jsonl", lines), "--model",
                                MODELS / "llama3", "--device", "emulated", "--kv-dtype", "fp8")
        self.assertIn("12 lines, 12 can run\n", out)

    def test_a_run_ends_with_the_gpu_that_was_asked_for_and_goes_on_later(self):
        lines = job_lines("llama3", 12)
        for device, env in (("cuda:0", self.as_gpus()), ("emulated", {})):
            with self.subTest(device):
                options = ("--device", device, "--name", device)
                self.run_job("llama3", lines, *options, exit_code=5,
                             env={**env, "BATCHMILL_EMULATED_LOST": "0:6"})
                name = "cuda:0" if device == "cuda:0" else "emulated:0"
                self.assertIn(f"batchmill: the device {name} is lost ({LOSS}): the lines of llama3 wait "
                              "until the process is started anew, which tries the device again\n", self.err)
                self.assertRegex(self.err, "finished lines are kept, the same command goes on:\n  .*run ")
                self.run_job("llama3", lines, *options, env=env)
                self.assertEqual(self.devices_of(lines), {name: len(lines)})
        out, _ = self.batchmill("list", "--json")
        self.assertEqual(len(out.splitlines()), 2)  # a job each, also over two processes

    def test_a_daemon_without_its_gpu_keeps_the_lines_and_says_why(self):
        lines = job_lines("llama3", 12)
        options = ("--device", "cuda:0")
        model = MODELS / "llama3"
        daemon = self.start_daemon(*options, model=model,
                                   env=self.as_gpus(BATCHMILL_EMULATED_LOST="0:6"))
        out, _ = self.batchmill("submit", self.write_lines("in.jsonl", lines))
        job = out.strip()
        trouble = (f"the device cuda:0 is lost ({LOSS}): the lines of llama3 wait until the process is "
                   "started anew, which tries the device again")

        def waits():
            out, _ = self.batchmill("status", job, "--json")
            batch = json.loads(out)
            return batch if trouble in batch["batchmill"]["warnings"] else None
        batch = wait_until("a warning", waits)
        self.assertEqual(batch["status"], "in_progress")
        self.assertEqual(batch["batchmill"]["lines_running"], 0)
        self.assertGreater(batch["batchmill"]["lines_pending"], 0)
        out, _ = self.batchmill("status", job)
        self.assertIn(f"warning      {trouble}\n", out)
        out, _ = self.batchmill("doctor", "--model", model, "--device", "cpu", exit_code=5)
        self.assertIn(f"failed   devices: {trouble}\n", out)
        self.assertIn(trouble, self.end(daemon))
        daemon = self.start_daemon(*options, model=model, env=self.as_gpus())
        self.batchmill("watch", job)
        out, _ = self.batchmill("doctor", "--model", model, "--device", "cpu")
        self.assertIn("ok       devices: cuda:0 runs llama3\n", out)
        self.end(daemon)

    def test_a_device_without_memory_makes_smaller_steps(self):
        lines = job_lines("gpt2", 24)
        cpu = self.run_job("gpt2", lines, "--device", "cpu", "--dtype", "f32")
        small = self.run_job("gpt2", lines, "--device", "emulated",
                             env={"BATCHMILL_EMULATED_FULL": "0:1"})
        self.check_tokens(cpu, small)
        self.assertRegex(self.err, "emulated:0 had no memory for a step: at most [0-9]+ tokens share one "
                                   "for now")

    def test_steps_grow_back_when_there_is_memory_again(self):
        daemon = self.start_daemon("--device", "emulated", model=MODELS / "gpt2", env={
            "BATCHMILL_EMULATED_FULL": "0:1:30", "BATCHMILL_DAEMON_LOG_LEVEL": "debug",
            "BATCHMILL_ENGINE_MAX_NUM_BATCHED_TOKENS": "64", "BATCHMILL_ENGINE_MAX_NUM_SEQS": "4"})
        lines = job_lines("gpt2", 160)
        self.batchmill("submit", "--wait", self.write_lines("in.jsonl", lines))
        said = self.end(daemon)
        shrunk = [int(rows) for rows in re.findall("no memory for a step: at most ([0-9]+)", said)]
        grown = [int(rows) for rows in re.findall("emulated:0 tries steps of ([0-9]+) tokens", said)]
        self.assertTrue(shrunk, said)
        self.assertLess(min(shrunk), 64)
        self.assertEqual(grown, sorted(grown), said)
        self.assertIn("emulated:0 has steps of full size again", said)

    def test_too_little_memory_at_the_start_is_said_with_numbers(self):
        lines = job_lines("llama3", 1)
        self.run_job("llama3", lines, "--device", "emulated", exit_code=2,
                     env={"BATCHMILL_EMULATED_MIB": "200"})
        self.assertRegex(self.err, "^batchmill: the model llama3 cannot run on device emulated: emulated:0: not "
                                   "enough memory: 200 MiB are free, and the model needs 1 MiB for "
                                   "weights, 2[0-9]+ MiB for steps of 2048 tokens, besides its KV cache "
                                   "of [0-9]+ bytes a token; a lower ")
        self.run_job("llama3", lines, "--device", "emulated", exit_code=2,
                     env={"BATCHMILL_EMULATED_MIB": "400",
                          "BATCHMILL_ENGINE_KV_CACHE_BYTES": "300000000"})
        found = re.search("not enough memory for a KV cache of 287 MiB: .* kv_cache_bytes can be at "
                          "most ([0-9]+), and 0 takes what is free", self.err)
        self.assertTrue(found, self.err)
        self.run_job("llama3", lines, "--device", "emulated",
                     env={"BATCHMILL_EMULATED_MIB": "400",
                          "BATCHMILL_ENGINE_KV_CACHE_BYTES": found[1]})

    def test_several_models_divide_a_device(self):
        config = self.dir / "two.toml"
        config.write_text("".join(f'[[model]]\nname = "{name}"\npath = "{MODELS / name}"\n'
                                  'device = "emulated"\n' for name in ("llama3", "gpt2")))
        lines = job_lines("llama3", 6) + job_lines("gpt2", 6)
        for i, line in enumerate(lines):
            line["custom_id"] = f"line-{i}"
            line["body"]["model"] = "llama3" if i < 6 else "gpt2"
        job = ("run", self.write_lines("in.jsonl", lines), "-o", self.dir / "out.jsonl", "--config", config)
        # Both have weights and steps; a little less is not enough, and both are named.
        enough = {"BATCHMILL_EMULATED_MIB": "600"}
        out, _ = self.batchmill("doctor", "--config", config, env=enough)
        caches = [int(mib) for mib in re.findall("on emulated:0, [0-9]+ MiB as bf16, KV cache ([0-9]+) MiB", out)]
        self.assertEqual(len(caches), 2, out)
        self.batchmill(*job, env=enough)
        self.assertEqual(self.devices_of(lines), {"emulated:0": len(lines)})
        _, err = self.batchmill(*job, env={"BATCHMILL_EMULATED_MIB": "500"}, exit_code=2)
        self.assertRegex(err, "^batchmill: the model gpt2 cannot run on device emulated: emulated:0: not enough "
                              "memory: 500 MiB are free, other models of the device need 2[0-9]+ MiB of them, "
                              "and the model needs [0-9]+ MiB for weights, ")

    def test_doctor_names_the_device(self):
        on_emulated = "on emulated:0, 0 MiB as bf16, KV cache [0-9]+ MiB as "
        for device, kv_dtype, pattern in (("emulated", "auto", on_emulated + "bf16"),
                                          ("emulated", "fp8", on_emulated + "fp8"),
                                          ("cpu", "auto", "on cpu:0, 0 MiB as ")):
            out, _ = self.batchmill("doctor", "--model", MODELS / "llama3", "--device", device,
                                    "--kv-dtype", kv_dtype)
            self.assertRegex(out, f"model llama3: llama, 2 layers, {pattern}")

    def test_bench_measures_the_device(self):
        options = ("bench", "--model", MODELS / "llama3", "--runs", 1, "--prefill-tokens", 32,
                   "--decode-sequences", 4, "--decode-tokens", 4, "--decode-prompt-tokens", 40)
        out, _ = self.batchmill(*options, "--device", "emulated", "--json")
        report = json.loads(out)
        self.assertEqual((report["device"], report["dtype"]), ("emulated:0", "bf16"))
        self.assertEqual(report["prefill"]["tokens"], 2 * 32)
        self.assertEqual(report["decode"]["tokens"], 4 * 4)
        for kind in ("prefill", "single_decode", "decode", "shared_decode"):
            numbers = report[kind]
            self.assertGreater(numbers["tokens_per_second"], 0)
            self.assertAlmostEqual(numbers["gb_per_second"] * 1e9 * numbers["step_seconds"],
                                   numbers["bytes_per_step"], delta=1)
        # What is shared is read once.
        self.assertLess(report["shared_decode"]["bytes_per_step"], report["decode"]["bytes_per_step"])
        self.assertEqual(report["decode"]["operations_per_step"], 4 * report["single_decode"]["operations_per_step"])
        self.assertIsNone(report["gemm_peak_gflops"])
        self.assertGreaterEqual(report["kv_slots"]["held"], 4 * 40)
        # What 4 sequences read of keys and values beyond what one does: heads of 16, with scales.
        out, _ = self.batchmill(*options, "--device", "emulated", "--json", "--kv-dtype", "int8")
        in_bytes = json.loads(out)
        self.assertEqual(in_bytes["kv_dtype"], "int8")
        more, less = (each["decode"]["bytes_per_step"] - each["single_decode"]["bytes_per_step"]
                      for each in (report, in_bytes))
        self.assertAlmostEqual(less / more, (16 + 4) / (2 * 16))
        # As a GPU that is found by itself, for people.
        out, _ = self.batchmill(*options, env=self.as_gpus())
        self.assertIn("llama3 on cuda:0, bf16 (KV bf16)\n", out)
        self.assertIn("peaks of a GPU are not measured here: cuda_bench has them", out)
        _, err = self.batchmill("bench", "--quality", "--model", MODELS / "llama3", "--device", "emulated",
                                exit_code=2)
        self.assertIn("bench --quality measures the CPU; device emulated is not for it", err)

    def test_what_the_backend_does_not_run_is_said(self):
        lines = job_lines("llama3", 1)
        for option, reason in ((("--dtype", "int8"), "computes in bf16, not int8"),
                               (("--kv-dtype", "f32"), "KV caches in bf16, int8 and fp8, not f32")):
            self.run_job("llama3", lines, "--device", "emulated", *option, exit_code=2)
            self.assertIn(reason, self.err)
        _, err = self.batchmill("run", self.write_lines("in.jsonl", lines), "-o", self.dir / "o",
                                "--model", MODELS / "deepseek_v3", "--device", "emulated", exit_code=2)
        self.assertIn("does not run latent attention", err)


class MissingDeviceTest(ProgramTest):
    def test_a_gpu_that_is_not_there_is_said_to_be(self):
        lines = self.write_lines("in.jsonl", job_lines("llama3", 1))
        for device in ("cuda:99", "cuda:0"):
            _, err = self.batchmill("run", lines, "-o", self.dir / "out.jsonl", "--model",
                                    MODELS / "llama3", "--device", device, exit_code=2,
                                    env={"BATCHMILL_PLUGINS": str(self.dir)})
            self.assertIn(f"cannot run on device {device}: there is no {self.dir}/batchmill_cuda.so", err)
        self.assertFalse((self.dir / "out.jsonl").exists())
        out, _ = self.batchmill("doctor", env={"BATCHMILL_PLUGINS": str(self.dir)})
        self.assertIn(f"gpu: not used: there is no {self.dir}/batchmill_cuda.so\n", out)

    def test_the_cpu_has_no_cache_in_fp8(self):
        lines = self.write_lines("in.jsonl", job_lines("llama3", 1))
        _, err = self.batchmill("run", lines, "-o", self.dir / "out.jsonl", "--model",
                                MODELS / "llama3", "--kv-dtype", "fp8", exit_code=2,
                                env={"BATCHMILL_PLUGINS": str(self.dir)})
        self.assertIn("the model llama3 cannot run on the CPU: kv_dtype fp8 is for GPUs; here it is "
                      "auto, f32, bf16 or int8", err)

    def test_auto_says_why_it_is_the_cpu(self):
        daemon = self.start_daemon("--device", "auto", env={
            "BATCHMILL_DAEMON_LOG_LEVEL": "info", "BATCHMILL_PLUGINS": str(self.dir)})
        self.assertRegex(daemon.said, "runs on the CPU, not on a GPU: there is no "
                                      f"{self.dir}/batchmill_cuda.so\n")
        self.end(daemon)


if __name__ == "__main__":
    unittest.main()
