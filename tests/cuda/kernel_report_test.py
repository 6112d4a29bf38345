#!/usr/bin/env python3
"""What ptxas makes of the kernels: no spills, no local memory, registers within budget; and the
PTX has 16-byte loads where a kernel reads rows. Prints one JSON line per kernel.

kernel_report_test.py PTXAS FILE.ptx…
"""
import json
import re
import subprocess
import sys

# Of compute capability 9.0, per multiprocessor.
REGISTERS = 65536
WARPS = 64
BLOCKS = 32
SHARED_BYTES = 228 << 10
RESERVED_SHARED_BYTES = 1 << 10  # of each block


def dim_of(name):
    return int(re.search(r"_kernelILi(\d+)E", name)[1])


def wide_threads(name):
    return 256 if dim_of(name) > 128 else 128


def kv_bytes_of(name):
    """Of a step's keys and values per dimension of a head and key, and of their scales per key."""
    return (4, 0) if "DTypeE1E" in name else (2, 8)


def wide_shared_bytes(name):
    """Dynamic shared memory of wide_attention_kernel<dim, type>, as its WideShape has it."""
    dim = dim_of(name)
    element, scales = kv_bytes_of(name)
    keys = 32 if dim > 128 or (dim == 128 and scales) else 64
    return 2 * dim * 128 + 2 * keys * (element * dim + scales)


def narrow_shared_bytes(name):
    """Dynamic shared memory of narrow_attention_kernel<dim, type>, as its NarrowShape has it."""
    dim = dim_of(name)
    element, scales = kv_bytes_of(name)
    stage = max(64 * (element * dim + scales) + 2 * dim * 16, 4 * 4 * 16 * (dim + 2))
    return stage * (3 if dim >= 128 else 5 if dim == 64 else 6)


# name: (threads, most registers, instructions that the PTX must have, dynamic shared memory); numbers
# that depend on the template's arguments are functions of the symbol
BUDGETS = {
    "activation_kernel": (256, 64, ("ld.global.v4",), None),
    "block_copy_kernel": (128, 40, ("ld.global.v4", "st.global.v4"), None),
    "combine_kernel": (128, 64, ("ld.global.v4",), None),
    "convert_kernel": (256, 40, ("ld.global.v4", "st.global.v4"), None),
    "embed_kernel": (128, 48, ("ld.global.v4", "st.global.v4"), None),
    "mean_kernel": (128, 96, ("ld.global.v4",), None),
    "narrow_attention_kernel": (128, 255, ("cp.async.cg", "ldmatrix", "mma.sync", "ld.global.v4"),
                                narrow_shared_bytes),
    "norm_kernel": (256, 128, ("ld.global.v4",), None),
    "product_kernel": (512, 128, ("ld.global.nc.L1::no_allocate.L2::128B.v4", "mma.sync"), None),
    "rotation_kernel": (128, 64, (), None),
    "row_kernel": (128, 40, ("ld.global.v4", "st.global.v4"), None),
    "sample_kernel": (512, 64, (), None),
    "store_kernel": (128, 64, ("ld.global.v4", "st.global.v4"), None),
    "take_drawn_kernel": (128, 32, (), None),
    "wide_attention_kernel": (wide_threads, 255, ("cp.async.cg", "ldmatrix", "mma.sync"),
                              wide_shared_bytes),
}


# What attention over int8 and FP8 must have besides: scales, and bytes made bf16.
BYTE_INSTRUCTIONS = ("cp.async.ca", "fma.rn.bf16x2")


def instructions_of(name, symbol):
    is_bytes = name in ("narrow_attention_kernel", "wide_attention_kernel") and kv_bytes_of(symbol)[1]
    return BUDGETS[name][2] + (BYTE_INSTRUCTIONS if is_bytes else ())


def kernel_of(symbol):
    """A mangled name's kernel; names are preceded by their length, which tells "row" from "arow"."""
    for name in BUDGETS:
        if f"{len(name)}{name}" in symbol:
            return name
    return None


def blocks_per_multiprocessor(threads, registers, shared):
    warps = threads // 32
    by_registers = REGISTERS // ((registers * 32 + 255) // 256 * 256 * warps)
    by_shared = SHARED_BYTES // (shared + RESERVED_SHARED_BYTES)
    return min(WARPS // warps, BLOCKS, by_registers, by_shared)


def ptx_of(text):
    """Symbol → body of each entry."""
    return {match[1]: match[2]
            for match in re.finditer(r"\.entry\s+(\w+)\((.*?)\n\}", text, re.DOTALL)}


def usage_of(ptxas, path):
    """Symbol → what ptxas says of it."""
    result = subprocess.run([ptxas, "-v", "-arch=sm_90", path, "-o", "/dev/null"],
                            capture_output=True, text=True, check=True)
    usage = {}
    symbol = None
    for line in result.stderr.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            symbol = match[1]
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", line):
            usage.setdefault(symbol, {}).update(stack=int(match[1]), spills=int(match[2]))
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            usage.setdefault(symbol, {}).update(
                registers=int(match[1]), shared=int(shared[1]) if shared else 0)
    return usage


def main():
    ptxas, *paths = sys.argv[1:]
    faults, seen = [], set()
    for path in paths:
        with open(path, encoding="utf-8") as file:
            entries = ptx_of(file.read())
        for symbol, usage in usage_of(ptxas, path).items():
            name = kernel_of(symbol)
            if name is None:
                faults.append(f"{symbol}: no budget")
                continue
            seen.add(name)
            threads, most, _, dynamic = BUDGETS[name]
            threads = threads(symbol) if callable(threads) else threads
            shared = usage["shared"] + (dynamic(symbol) if dynamic else 0)
            body = entries[symbol]
            faults += [f"{symbol}: {what}" for what, is_bad in (
                ("spills", usage["spills"] > 0), ("a stack", usage["stack"] > 0),
                (f"{usage['registers']} registers, at most {most}", usage["registers"] > most),
                ("local memory", ".local" in body),
                *((f"no {wanted}", wanted not in body) for wanted in instructions_of(name, symbol))) if is_bad]
            blocks = blocks_per_multiprocessor(threads, usage["registers"], shared)
            print(json.dumps({"kernel": symbol, "registers": usage["registers"],
                              "spill_bytes": usage["spills"], "shared_bytes": shared,
                              "threads": threads, "blocks_per_sm": blocks,
                              "occupancy": blocks * threads / (32 * WARPS)}))
    faults += [f"{name}: not there" for name in BUDGETS if name not in seen]
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults" if faults else "no faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
