"""Writes golden-dynamic.json: the tiny model llama-linear with dynamic NTK scaling instead of linear, computed by Hugging
Face transformers token by token over its cache, so that each token is rotated by the base of its own position."""
import json
import sys

import torch
from transformers import AutoConfig, DynamicCache, LlamaForCausalLM

FOLDER, OUTPUT = sys.argv[1:]
config = AutoConfig.from_pretrained(FOLDER)
config.max_position_embeddings = 64
config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
model = LlamaForCausalLM.from_pretrained(FOLDER, config=config, dtype=torch.float32, attn_implementation="eager").eval()
prompt = json.load(open(FOLDER + "/golden.json"))[3]["prompt"]

cache, tokens, logits = DynamicCache(), list(prompt), []
with torch.no_grad():
    for i in range(len(prompt) + 31):
        position = torch.tensor([[i]])
        row = model(torch.tensor([[tokens[i]]]), past_key_values=cache, use_cache=True, position_ids=position).logits[0, -1]
        logits.append(row)
        if i + 1 >= len(prompt):
            tokens.append(int(row.argmax()))
tokens.append(int(logits[-1].argmax()))
rows = torch.stack(logits)
best = rows.topk(2).values
margins = (best[:, 0] - best[:, 1]).tolist()
n = len(prompt)
logprobs = rows.double().log_softmax(-1)
case = {"prompt": prompt, "logits_last": rows[n - 1].tolist(), "logits_all_argmax": rows[:n].argmax(-1).tolist(),
        "logits_all_margin": margins[:n],
        "logprob_sum": float(sum(logprobs[i - 1, prompt[i]] for i in range(1, n))),
        "greedy": tokens[n:n + 32], "greedy_margins": margins[n - 1:n + 31], "min_greedy_margin": min(margins[n - 1:n + 31])}
json.dump([case], open(OUTPUT, "w"))
print(case["min_greedy_margin"], len(case["greedy"]), len(case["greedy_margins"]), len(rows))
