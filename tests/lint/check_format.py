#!/usr/bin/env python3
"""Every C++ file is as clang-format 14 writes it. Skipped (exit code 77) without clang-format."""
import shutil
import subprocess
import sys
from pathlib import Path

from source_files import ROOT, cpp_files, is_generated

TOOL = shutil.which("clang-format-14") or shutil.which("clang-format")


def main():
    if TOOL is None:
        print("skipped: clang-format is not installed")
        sys.exit(77)
    names = [name for name in cpp_files()
             if not is_generated((Path(ROOT) / name).read_text(encoding="utf-8"))]
    result = subprocess.run([TOOL, "--dry-run", "-Werror", *names], cwd=ROOT, check=False)
    print("run: clang-format -i FILE" if result.returncode else f"{len(names)} files, no faults")
    sys.exit(1 if result.returncode else 0)


if __name__ == "__main__":
    main()
