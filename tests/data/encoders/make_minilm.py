"""Writes all-MiniLM-L6-v2.json: embeddings of token ids by Hugging Face transformers in float32.

python make_minilm.py FOLDER all-MiniLM-L6-v2.json
"""
import json
import sys

import torch
from transformers import BertModel

model = BertModel.from_pretrained(sys.argv[1], attn_implementation="eager", dtype=torch.float32).eval()
cases = []
for length in (5, 17, 64, 200):
    ids = [1000 + (i * 37 + length * 11) % 20000 for i in range(length)]
    with torch.no_grad():
        mean = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
    cases.append({"input": ids, "embedding": [round(x, 8) for x in (mean / mean.norm()).tolist()]})
with open(sys.argv[2], "w") as file:
    json.dump(cases, file)
    file.write("\n")
