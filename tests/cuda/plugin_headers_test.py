#!/usr/bin/env python3
"""The number that tells builds of program and plugin apart changes with every header that crosses,
and with no other.

plugin_headers_test.py SOURCE_ROOT WORK_FOLDER CMAKE
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path


def number_of(cmake, script, root, folder):
    header = folder / "plugin_headers.h"
    subprocess.run([cmake, f"-DROOT={root}", f"-DOUTPUT={header}", "-P", script], check=True)
    return re.search(r"kPluginHeaders = (0x[0-9a-f]{16});", header.read_text(encoding="utf-8"))[1]


def main():
    root, folder, cmake = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    script = root / "tools/cmake/PluginHeaders.cmake"
    shutil.rmtree(folder, ignore_errors=True)
    copy = folder / "source"
    for name in ("engine", "cuda"):
        (copy / name).mkdir(parents=True)
        for header in (root / name).glob("*.h"):
            shutil.copy(header, copy / name)
    before = number_of(cmake, script, copy, folder)
    faults = []
    if number_of(cmake, script, root, folder) != before:
        faults.append("the same headers elsewhere have another number")
    # A virtual function more, a member more of what backend.h includes, something else entirely.
    for name, text, crosses in (("engine/backend.h", "  virtual void more() {}\n", True),
                                ("engine/kv_cache.h", "  int more = 0;\n", True),
                                ("cuda/plugin.h", "// more\n", True),
                                ("engine/prefix_tree.h", "// more\n", False),
                                ("cuda/cuda_backend.h", "// more\n", False)):
        header = copy / name
        original = header.read_text(encoding="utf-8")
        header.write_text(original + text, encoding="utf-8")
        if (number_of(cmake, script, copy, folder) != before) != crosses:
            faults.append(f"{name}: the number {'stays' if crosses else 'changes'}")
        header.write_text(original, encoding="utf-8")
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults" if faults else "no faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
