"""Writes dequantize.json: seeded blocks of each GGUF type that can be read, with their values by the gguf
package (0.19 or later). Bytes and float32 values are hexadecimal, as they lie in memory (little-endian).

Every block has random bytes; the half-precision scales are drawn by hand: usual sizes first, then the ends
of the range (zeros, subnormals, the largest, infinity)."""
import json
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T, quants

# Byte offsets of the half-precision numbers in a block.
HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
          T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0]}
EXTREMES = [0.0, -0.0, 6e-8, -6e-5, 65504.0, -65504.0, np.inf]
EXPONENTS = [0, 1, 2, 3, 126, 127, 128, 253, 254, 255]  # of MXFP4

rng = np.random.default_rng(7)


def blocks_of(kind, size):
    if kind == T.MXFP4:
        raw = rng.integers(0, 256, (len(EXPONENTS), size), dtype=np.uint8)
        raw[:, 0] = EXPONENTS
        return raw
    usual = 2 if size > 64 else 3
    extremes = EXTREMES if size <= 64 else [EXTREMES[i] for i in (0, 2, 5)]
    raw = rng.integers(0, 256, (usual + len(extremes), size), dtype=np.uint8)
    for order, at in enumerate(HALVES[kind]):
        scales = rng.normal(0, 0.3, len(raw)).astype(np.float16)
        # Where there are two, they are extreme in different blocks and in one block together.
        scales[usual:] = np.roll(extremes, order).astype(np.float16)
        raw[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return raw


def plain(kind):
    values = rng.normal(0, 3, 64).astype(np.float32)
    values[:8] = [0, -0.0, 6e-8, -3e-6, 65504, 6.2e-5, np.inf, -np.inf]
    if kind == T.F32:
        return values.view(np.uint8)
    if kind == T.F16:
        return values.astype(np.float16).view(np.uint8)
    return np.ascontiguousarray(values.view(np.uint16)[1::2]).view(np.uint8)


cases = []
with np.errstate(invalid="ignore", over="ignore"):
    for kind in [T.F32, T.F16, T.BF16, *HALVES, T.MXFP4]:
        raw = plain(kind) if kind in (T.F32, T.F16, T.BF16) else blocks_of(kind, GGML_QUANT_SIZES[kind][1])
        values = quants.dequantize(raw.reshape(-1), kind).astype("<f4")
        cases.append({"type": int(kind), "name": kind.name, "bytes": raw.tobytes().hex(), "values": values.tobytes().hex()})
with open("dequantize.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
