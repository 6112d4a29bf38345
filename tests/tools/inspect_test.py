"""What `batchmill inspect` tells about models that can run and about those that cannot."""
import json
import shutil
import struct
import sys
import unittest

from driver import TINY_ENCODER, TINY_MODEL, ProgramTest

CONFIGS = TINY_MODEL.parents[2] / "configs"
MODELS = TINY_MODEL.parents[1]


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(architecture, tensor_type=0):
    """A GGUF file with one tensor of 256 numbers and two keys."""
    keys = [text("general.architecture") + struct.pack("<I", 8) + text(architecture),
            text(architecture + ".block_count") + struct.pack("<II", 4, 7)]
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys)) + b"".join(keys)
    head += text("token_embd.weight") + struct.pack("<IQIQ", 1, 256, tensor_type, 0)
    return head + bytes(-len(head) % 32) + bytes(2048)


class InspectTest(ProgramTest):
    def inspect(self, path, *flags, exit_code=0):
        out, err = self.batchmill("inspect", path, "--json", *flags, exit_code=exit_code)
        return (json.loads(out) if out else None), err

    def test_shapes_and_bytes(self):
        model, _ = self.inspect(TINY_MODEL, "--dtype", "f32")
        self.assertIs(model["supported"], True)
        self.assertEqual(model["architecture"], "llama")
        self.assertEqual(model["shape"]["layers"], 2)
        self.assertEqual(model["layer_kinds"],
                         [{"attention": "full", "mlp": "dense", "rope": 0, "layers": [0, 1]}])
        self.assertEqual(model["ropes"][0]["theta"], 500000)
        self.assertEqual(model["rope_frequency_factors"]["largest"], 8)
        self.assertEqual(model["tensors"]["types"], {"F32": 6, "Q4_0": 14, "Q8_0": 2})
        self.assertEqual(model["vocabulary"]["model"], "gpt2")
        self.assertIn("<|im_start|>", model["chat_template"])
        parameters = 2 * 384 * 64 + 2 * (64 * 64 * 2 + 64 * 16 * 2 + 3 * 64 * 256 + 2 * 64) + 64
        self.assertEqual(model["parameters"], parameters)
        device = model["device"]
        # 2 × layers × kv heads × head size × bytes
        self.assertEqual(device["kv_bytes_per_token"], 2 * 2 * 1 * 16 * 4)
        self.assertEqual(device["kv_bytes_formula"], "2 × 2 layers × 1 heads × 16 × 4 bytes")
        self.assertEqual(device["weight_bytes"], 4 * parameters)

    def test_what_fits_is_room_over_bytes(self):
        device = self.inspect(TINY_MODEL)[0]["device"]
        self.assertLess(device["cache_room_bytes"], device["available_bytes"])
        self.assertEqual(device["context_fits"][-1]["context_tokens"], 512)
        for row in device["context_fits"]:
            needed = row["sequences"] * row["kv_bytes_per_sequence"]
            self.assertLessEqual(needed, device["cache_room_bytes"])
            self.assertGreater(needed + row["kv_bytes_per_sequence"], device["cache_room_bytes"])

    def test_the_text_form_has_the_formula_and_the_shapes(self):
        out, _ = self.batchmill("inspect", TINY_MODEL, "--dtype", "f32")
        for part in ("tiny llama", "2 × 2 layers × 1 heads × 16 × 4 bytes", "2 full", "base 500000",
                     "divided by 1 to 8", "384 tokens, gpt2 / gpt-2", "512 tokens ×"):
            self.assertIn(part, out)

        self.assertIn("file           0.1 MiB of tensors: 6 F32, 14 Q4_0, 2 Q8_0\n", out)
        self.assertRegex(out, r"available, of which a KV cache takes \S+ MiB by default \(\d+ tokens\)")
        self.assertRegex(out, r"it may take \S+ .iB .*four fifths of what the weights leave")

    def test_an_encoder_has_no_kv_cache(self):
        out, _ = self.batchmill("inspect", TINY_ENCODER)
        self.assertIn("\nKV cache       none: an encoder keeps nothing\n", out)
        self.assertRegex(out, r"\nthis machine   \S+ .iB available: the weights fit\n")

    def test_an_unknown_architecture_is_described_and_refused_by_name(self):
        path = self.dir / "unknown.gguf"
        path.write_bytes(gguf("mammoth"))
        model, err = self.inspect(path, exit_code=2)
        self.assertIs(model["supported"], False)
        self.assertEqual(model["architecture"], "mammoth")
        self.assertIn("'mammoth' is not supported", model["reason"])
        self.assertIn("'mammoth' is not supported", err)
        self.assertEqual(model["metadata"]["mammoth.block_count"], 7)
        self.assertEqual(model["tensors"]["types"], {"F32": 1})
        out, _ = self.batchmill("inspect", path, exit_code=2)
        self.assertIn("mammoth.block_count = 7", out)

    def test_a_file_without_weights_shows_the_shapes_it_states(self):
        path = self.dir / "cut.gguf"
        whole = TINY_MODEL.read_bytes()
        at = whole.index(b"blk.1.ffn_down.weight")  # in the directory of tensors
        path.write_bytes(whole[:at] + b"X" + whole[at + 1:])
        model, err = self.inspect(path, "--dtype", "f32", exit_code=2)
        self.assertIs(model["supported"], False)
        self.assertIn("blk.1.ffn_down.weight", model["reason"])
        self.assertIn("blk.1.ffn_down.weight", err)
        self.assertEqual(model["shape"]["layers"], 2)
        self.assertEqual(model["device"]["kv_bytes_per_token"], 2 * 2 * 1 * 16 * 4)

    def test_well_known_sizes_from_their_config_alone(self):
        sizes = {"llama-3-8b": (8030261248, 131072), "llama-3.1-70b": (70553706496, 327680),
                 "deepseek-v3": (671026419200, 70272)}
        models = {}
        for name, (parameters, kv_bytes_per_token) in sizes.items():
            # Without weights it cannot run, and is described all the same.
            model, _ = self.inspect(CONFIGS / name, "--dtype", "bf16", exit_code=2)
            self.assertEqual(model["parameters"], parameters, name)
            self.assertEqual(model["device"]["kv_bytes_per_token"], kv_bytes_per_token, name)
            models[name] = model
        whole = models["llama-3.1-70b"]["device"]["context_fits"][-1]
        self.assertEqual((whole["context_tokens"], whole["kv_bytes_per_sequence"]),
                         (131072, 42949672960))  # 42.9 GB
        self.assertEqual(models["llama-3.1-70b"]["ropes"],
                         [{"theta": 500000, "scaling": "llama3", "factor": 8,
                           "original_context_tokens": 8192, "low_freq_factor": 1,
                           "high_freq_factor": 4}])
        deepseek = models["deepseek-v3"]
        self.assertEqual(deepseek["device"]["kv_bytes_formula"], "61 layers × (512 + 64) × 2 bytes")
        self.assertEqual([(kind["attention"], kind["mlp"], len(kind["layers"]))
                          for kind in deepseek["layer_kinds"]],
                         [("latent", "dense", 3), ("latent", "experts", 58)])
        self.assertEqual(deepseek["ropes"][0]["scaling"], "yarn")
        self.assertAlmostEqual(deepseek["active_parameters"] / 1e9, 37.5, delta=0.1)

    def test_a_folder_is_described_like_a_file(self):
        model, _ = self.inspect(MODELS / "qwen2-yarn", "--dtype", "f32")
        self.assertIs(model["supported"], True)
        self.assertEqual(model["architecture"], "qwen2")
        self.assertEqual(model["name"], "qwen2-yarn")
        self.assertEqual(list(model["tensors"]["types"]), ["F32"])
        self.assertEqual(model["ropes"][0]["scaling"], "yarn")
        self.assertEqual(model["shape"]["max_context_tokens"], 256)

    def test_broken_folders_name_the_fault(self):
        folder = self.dir / "broken"
        shutil.copytree(MODELS / "llama", folder)
        weights = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(weights[:-1])
        model, err = self.inspect(folder, exit_code=2)
        self.assertIs(model["supported"], False)
        self.assertEqual(model["shape"]["layers"], 2)
        self.assertIn("model.safetensors: tensor", err)
        self.assertIn("truncated", err)
        (folder / "config.json").unlink()
        _, err = self.inspect(folder, exit_code=2)
        self.assertIn("holds no config.json", err)
        _, err = self.inspect(MODELS / "llama" / "model.safetensors", exit_code=2)
        self.assertIn("give the folder", err)
        self.inspect(self.dir / "nowhere", exit_code=4)

    def test_what_is_no_model_gives_nothing_but_the_reason(self):
        path = self.dir / "damaged.gguf"
        path.write_bytes(gguf("llama")[:70])
        model, err = self.inspect(path, exit_code=2)
        self.assertIsNone(model)
        self.assertIn("damaged GGUF file", err)
        self.inspect("none.gguf", exit_code=4)


if __name__ == "__main__":
    sys.exit(unittest.main())
