#!/usr/bin/env python3
"""What ptxas makes of the kernels: no spills, no local memory, registers within budget; and the
PTX has 16-byte loads where a kernel reads rows. Prints one JSON line per kernel.

kernel_report_test.py PTXAS ATTENTION_SHAPES FILE.ptx… --older FILE.ptx…

The first files are assembled for compute capability 9.0; those for older devices for 8.0 and 8.6,
whose blocks may have less shared memory.
"""
import concurrent.futures
import json
import re
import subprocess
import sys

BF16 = 1  # of DType

# Compute capability → shared memory that a block may have.
SHARED_LIMITS = {"sm_80": 163 << 10, "sm_86": 99 << 10, "sm_90": 227 << 10}

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


def kv_of(name):
    """The cache's type, as DType counts them."""
    return int(re.search(r"DTypeE(\d)E", name)[1])


def stages_of(name):
    return int(re.search(r"DTypeE\dELi(\d+)E", name)[1])


class Shapes:
    """What attention_shapes prints: shared memory by head size and type of cache."""

    def __init__(self, program):
        lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        self.by_key = {(shape["dim"], shape["kv"]): shape
                       for shape in map(json.loads, lines.splitlines())}

    def of(self, name):
        return self.by_key[dim_of(name), kv_of(name)]

    def dynamic_bytes(self, kernel, name):
        if kernel == "wide_attention_kernel":
            return self.of(name)["wide_bytes"]
        if kernel == "narrow_attention_kernel":
            return self.of(name)["stage_bytes"] * stages_of(name)
        return 0

    def does_run(self, kernel, name, limit):
        """Whether a device whose blocks may have that much is given this kernel."""
        if kernel == "wide_attention_kernel":
            return self.of(name)["runs"][str(limit)] > 0
        if kernel == "narrow_attention_kernel":
            return self.of(name)["runs"][str(limit)] == stages_of(name)
        return True


# name: (threads, most registers, instructions that the PTX must have); numbers that depend on the
# template's arguments are functions of the symbol
BUDGETS = {
    "activation_kernel": (256, 64, ("ld.global.v4",)),
    "block_copy_kernel": (128, 40, ("ld.global.v4", "st.global.v4")),
    "combine_kernel": (128, 64, ("ld.global.v4",)),
    "convert_kernel": (256, 40, ("ld.global.v4", "st.global.v4")),
    "embed_kernel": (128, 48, ("ld.global.v4", "st.global.v4")),
    "mean_kernel": (128, 96, ("ld.global.v4",)),
    "narrow_attention_kernel": (128, 255, ("cp.async.cg", "ldmatrix", "mma.sync", "ld.global.v4")),
    "norm_kernel": (256, 128, ("ld.global.v4",)),
    "product_kernel": (512, 128, ("ld.global.nc.L1::no_allocate.L2::128B.v4", "mma.sync")),
    "rotation_kernel": (128, 64, ()),
    "row_kernel": (128, 40, ("ld.global.v4", "st.global.v4")),
    "sample_kernel": (512, 64, ()),
    "store_kernel": (128, 64, ("ld.global.v4", "st.global.v4")),
    "take_drawn_kernel": (128, 32, ()),
    "wide_attention_kernel": (wide_threads, 255, ("cp.async.cg", "ldmatrix", "mma.sync")),
}


# What attention over int8 and FP8 must have besides: scales, and bytes made bf16.
BYTE_INSTRUCTIONS = ("cp.async.ca", "fma.rn.bf16x2")


def instructions_of(name, symbol):
    is_bytes = name in ("narrow_attention_kernel", "wide_attention_kernel") and kv_of(symbol) != BF16
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


def usage_of(ptxas, capability, path):
    """Symbol → what ptxas says of it."""
    result = subprocess.run([ptxas, "-v", f"-arch={capability}", path, "-o", "/dev/null"],
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


def faults_of(symbol, kernel, usage, body, capability, shapes):
    most = BUDGETS[kernel][1]
    faults = [what for what, is_bad in (
        ("spills", usage["spills"] > 0), ("a stack", usage["stack"] > 0),
        (f"{usage['registers']} registers, at most {most}", usage["registers"] > most),
        ("local memory", ".local" in body),
        *((f"no {wanted}", wanted not in body) for wanted in instructions_of(kernel, symbol)))
              if is_bad]
    shared = usage["shared"] + shapes.dynamic_bytes(kernel, symbol)
    limit = SHARED_LIMITS[capability]
    if shared > limit and shapes.does_run(kernel, symbol, limit):
        faults.append(f"{shared} bytes of shared memory, at most {limit}")
    if kernel == "narrow_attention_kernel" and usage["shared"] != shapes.of(symbol)["static_bytes"]:
        faults.append(f"{usage['shared']} bytes of static shared memory")
    return [f"{symbol}, {capability}: {fault}" for fault in faults]


def main():
    ptxas, shapes_program, *paths = sys.argv[1:]
    older = paths.index("--older")
    shapes = Shapes(shapes_program)
    work = [("sm_90", path) for path in paths[:older]]
    work += [(capability, path) for path in paths[older + 1:] for capability in ("sm_80", "sm_86")]
    faults, seen = [], set()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        usages = list(pool.map(lambda item: usage_of(ptxas, *item), work))
    for (capability, path), usage_by_symbol in zip(work, usages):
        with open(path, encoding="utf-8") as file:
            entries = ptx_of(file.read())
        for symbol, usage in usage_by_symbol.items():
            kernel = kernel_of(symbol)
            if kernel is None:
                faults.append(f"{symbol}: no budget")
                continue
            seen.add((capability, kernel))
            faults += faults_of(symbol, kernel, usage, entries[symbol], capability, shapes)
            if capability != "sm_90":
                continue
            threads = BUDGETS[kernel][0]
            threads = threads(symbol) if callable(threads) else threads
            shared = usage["shared"] + shapes.dynamic_bytes(kernel, symbol)
            blocks = blocks_per_multiprocessor(threads, usage["registers"], shared)
            print(json.dumps({"kernel": symbol, "registers": usage["registers"],
                              "spill_bytes": usage["spills"], "shared_bytes": shared,
                              "threads": threads, "blocks_per_sm": blocks,
                              "occupancy": blocks * threads / (32 * WARPS)}))
    faults += [f"{name}, {capability}: not there" for name in BUDGETS for capability in SHARED_LIMITS
               if (capability, name) not in seen]
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults" if faults else "no faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
