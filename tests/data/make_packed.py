#!/usr/bin/env python3
"""Writes packed/KIND: tiny Llama folders in AWQ and GPTQ 4-bit, and what a reader must make of them.

Each folder has config.json, model.safetensors and expected.json: some `matrices` (weights [out, in] by
name, scale x (q - zero) in float32) and `logits` after the last token of `prompt`, computed by transformers
in float32 from all of them. Numbers are packed as AutoAWQ's and AutoGPTQ's writers do it.

Needs numpy, torch, transformers and safetensors:  python make_packed.py
"""
import json
import pathlib

import numpy
import torch
from safetensors.numpy import save_file
from transformers import LlamaConfig, LlamaForCausalLM

HIDDEN, INNER, VOCAB, GROUP = 32, 64, 48, 16
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
LINEAR = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN, HIDDEN // 2),
    "self_attn.v_proj": (HIDDEN, HIDDEN // 2),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (HIDDEN, INNER),
    "mlp.up_proj": (HIDDEN, INNER),
    "mlp.down_proj": (INNER, HIDDEN),
}  # inputs, outputs
SHOWN = ("q_proj", "v_proj", "down_proj")
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True,
       "modules_to_not_convert": None}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False,
        "checkpoint_format": "gptq", "true_sequential": True}
KINDS = {
    "awq": AWQ,
    "gptq": {**GPTQ, "sym": True},
    "gptq-act-order": {**GPTQ, "desc_act": True},
    "gptq-v2": {**GPTQ, "group_size": -1, "checkpoint_format": "gptq_v2"},
}


def words(columns):
    """[rows, 8 n] of small numbers, first one lowest, as int32 [rows, n]."""
    parts = columns.reshape(columns.shape[0], -1, 8).astype(numpy.uint32)
    packed = numpy.zeros(parts.shape[:2], numpy.uint32)
    for i in range(8):
        packed |= parts[:, :, i] << numpy.uint32(4 * i)
    return packed.view(numpy.int32)


def awq_words(columns):
    parts = columns.reshape(columns.shape[0], -1, 8)[:, :, AWQ_ORDER]
    return words(parts.reshape(columns.shape))


def linear(kind, settings, random, inputs, outputs):
    """The arrays of one layer by ending, and its matrix [out, in]."""
    size = inputs if settings["group_size"] == -1 else settings["group_size"]
    groups = numpy.arange(inputs) // size
    if settings.get("desc_act"):
        random.shuffle(groups)
    num_groups = inputs // size
    q = random.integers(0, 16, (inputs, outputs))
    zeros = random.integers(1, 17 if kind == "gptq-act-order" else 16, (num_groups, outputs))
    if settings.get("sym"):
        zeros[:] = 8
    scales = random.uniform(0.01, 0.05, (num_groups, outputs)).astype(numpy.float16)
    matrix = scales.astype(numpy.float32)[groups] * (q - zeros[groups]).astype(numpy.float32)
    if kind == "awq":
        arrays = {"qweight": awq_words(q), "qzeros": awq_words(zeros)}
    else:
        stored = zeros if kind == "gptq-v2" else zeros - 1
        arrays = {"qweight": numpy.ascontiguousarray(words(q.T).T), "qzeros": words(stored)}
    arrays["scales"] = scales
    if kind in ("gptq", "gptq-act-order"):
        arrays["g_idx"] = groups.astype(numpy.int32)
    if kind == "gptq":
        arrays["bias"] = numpy.zeros(outputs, numpy.float16)
    return arrays, numpy.ascontiguousarray(matrix.T)


def make(kind, settings, folder):
    random = numpy.random.default_rng(list(KINDS).index(kind) + 1)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        tie_word_embeddings=False, bos_token_id=0, eos_token_id=0)
    arrays, matrices = {}, {}
    for name, rows in (("model.embed_tokens", VOCAB), ("lm_head", VOCAB)):
        arrays[name + ".weight"] = random.normal(0, 0.5, (rows, HIDDEN)).astype(numpy.float16)
    for name in ("model.norm", "model.layers.0.input_layernorm",
                 "model.layers.0.post_attention_layernorm"):
        arrays[name + ".weight"] = random.uniform(0.5, 1.5, HIDDEN).astype(numpy.float16)
    for name, (inputs, outputs) in LINEAR.items():
        parts, matrix = linear(kind, settings, random, inputs, outputs)
        arrays.update({f"model.layers.0.{name}.{part}": array for part, array in parts.items()})
        matrices[f"model.layers.0.{name}.weight"] = matrix
    model = LlamaForCausalLM(config).float().eval()
    state = {name: torch.from_numpy(array.astype(numpy.float32))
             for name, array in {**arrays, **matrices}.items() if name.endswith(".weight")}
    model.load_state_dict(state)
    prompt = random.integers(1, VOCAB, 20).tolist()
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits[0, -1].tolist()

    folder.mkdir(parents=True, exist_ok=True)
    save_file(arrays, folder / "model.safetensors")
    text = json.loads(config.to_json_string(use_diff=False))
    keep = {key: text[key] for key in (
        "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "rms_norm_eps",
        "tie_word_embeddings", "hidden_act", "eos_token_id", "rope_parameters")}
    keep["architectures"] = ["LlamaForCausalLM"]
    keep["quantization_config"] = settings
    (folder / "config.json").write_text(json.dumps(keep, indent=1) + "\n")
    expected = {
        "matrices": {name: [[float(f"{x:.9g}") for x in row] for row in matrix.tolist()]
                     for name, matrix in matrices.items() if name.split(".")[-2] in SHOWN},
        "prompt": prompt,
        "logits": logits,
    }
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


def main():
    root = pathlib.Path(__file__).parent / "packed"
    for kind, settings in KINDS.items():
        make(kind, settings, root / kind)


main()
