"""Writes positions.json: rotary and sinusoidal positions as Hugging Face transformers computes them."""
import json
import sys

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings

CASES = [
    dict(dim=64, theta=10000.0, rope_type="default"),
    dict(dim=64, theta=10000.0, rope_type="linear", factor=4.0),
    dict(dim=128, theta=500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
         original=8192),
    dict(dim=64, theta=500000.0, rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
         original=8192),
    dict(dim=128, theta=1000000.0, rope_type="yarn", factor=4.0, original=32768),
    dict(dim=64, theta=10000.0, rope_type="yarn", factor=40.0, original=4096, mscale=1.0, mscale_all_dim=0.8),
    dict(dim=32, theta=10000.0, rope_type="yarn", factor=8.0, original=64, beta_fast=16.0, beta_slow=2.0,
         truncate=False),
    dict(dim=64, theta=10000.0, rope_type="yarn", factor=16.0, original=128, given=1.5),
] + [dict(dim=64, theta=10000.0, rope_type="dynamic", factor=2.0, original=2048, seq_len=n)
     for n in (1, 2048, 2049, 3000, 8192)]


def rotation(case: dict) -> dict:
    rope = {"rope_type": case["rope_type"], "rope_theta": case["theta"]}
    for key in ("factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "truncate", "mscale",
                "mscale_all_dim"):
        if key in case:
            rope[key] = case[key]
    if "given" in case:
        rope["attention_factor"] = case["given"]
    context = case.get("original", 4096)
    if case["rope_type"] in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = context
        context = int(context * case["factor"])
    config = LlamaConfig(hidden_size=4 * case["dim"], num_attention_heads=4, max_position_embeddings=context,
                         rope_parameters=rope)
    if case["rope_type"] == "default":
        frequencies = 1.0 / (case["theta"] ** (torch.arange(0, case["dim"], 2, dtype=torch.float64) / case["dim"]))
        factor = 1.0
    else:
        frequencies, factor = ROPE_INIT_FUNCTIONS[case["rope_type"]](config, "cpu", seq_len=case.get("seq_len"))
    return {**case, "frequencies": [float(f) for f in frequencies], "attention_factor": float(factor)}


def sinusoids() -> dict:
    table = torch.empty(40, 64)
    create_sinusoidal_embeddings(n_pos=40, dim=64, out=table)
    return {"dim": 64, "rows": table.tolist()}


with open(sys.argv[1], "w") as file:
    json.dump({"rotations": [rotation(case) for case in CASES], "sinusoids": sinusoids()}, file)
    file.write("\n")
