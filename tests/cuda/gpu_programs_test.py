#!/usr/bin/env python3
"""What gpu_programs.txt lists, and all that it includes, needs nothing but the standard library and
the CUDA toolkit: a machine with a GPU and no other library can build it.

gpu_programs_test.py SOURCE_ROOT
"""
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
# The standard library, Linux, the toolkit.
ALLOWED = re.compile(r"[a-z0-9_]+|(cuda|cublas)[A-Za-z0-9_]*\.h|immintrin\.h")
# Used instead of the toolkit where there is none: nvcc and the programs' sources do not see it.
EMULATION = "cuda/emulation/"


def listed_sources(root):
    lines = (root / "tests/cuda/gpu_programs.txt").read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def main():
    root = Path(sys.argv[1])
    sources = listed_sources(root)
    faults = [f"{kind} {name}: unknown kind" for kind, name in sources
              if kind not in ("library", "check", "bench")]
    waiting = [name for _, name in sources]
    seen = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name.startswith(EMULATION):
            continue
        seen.add(name)
        if not (root / name).is_file():
            faults.append(f"{name}: there is no such file")
            continue
        for kind, included in INCLUDE.findall((root / name).read_text(encoding="utf-8")):
            if kind == '"':
                waiting.append(included)
            elif not ALLOWED.fullmatch(included):
                faults.append(f"{name}: includes <{included}>")
    kernels = {str(path.relative_to(root)) for path in (root / "cuda").glob("*.cu")}
    faults += [f"{name}: not listed" for name in sorted(kernels - seen)]
    for fault in faults:
        print(fault)
    print(f"{len(seen)} files, {len(faults)} faults")
    return 1 if faults or len(seen) < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
