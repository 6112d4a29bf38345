"""Writes dequantize.json: two seeded blocks of each GGUF type and their values by the gguf package."""
import json
import numpy as np
from gguf import GGMLQuantizationType as T, quants

rng = np.random.default_rng(7)
out = []
for t, size in ((T.Q4_0, 18), (T.Q4_1, 20), (T.Q8_0, 34), (T.F16, 64), (T.BF16, 64), (T.F32, 128)):
    raw = rng.integers(0, 256, (2, size), dtype=np.uint8)
    scales = {T.Q4_0: 1, T.Q4_1: 2, T.Q8_0: 1}.get(t, 0)
    if scales:
        values = rng.normal(0, 0.3, (2, scales)).astype(np.float16)
        raw[:, : 2 * scales] = values.view(np.uint8).reshape(2, -1)
    elif t == T.F16:
        raw = rng.normal(0, 3, (2, 32)).astype(np.float16)
        raw[0, :6] = [0, -0.0, 6e-8, -3e-6, 65504, 6.2e-5]
        raw = raw.view(np.uint8)
    else:
        raw = rng.normal(0, 3, (2, 32)).astype(np.float32)
        raw = raw.view(np.uint8) if t == T.F32 else np.ascontiguousarray(raw.view(np.uint16)[:, 1::2]).view(np.uint8)
    floats = quants.dequantize(raw.reshape(-1), t).astype(np.float64)
    out.append({"type": int(t), "name": t.name, "bytes": raw.reshape(-1).tolist(), "values": floats.reshape(-1).tolist()})
with open("dequantize.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(x) for x in out) + "\n]\n")
