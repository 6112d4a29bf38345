#!/usr/bin/env python3
"""No source over 500 lines; every header begins with a comment, then #pragma once."""
from pathlib import Path

from source_files import CPP_ENDINGS, ROOT, is_generated, report, tracked_files

MAX_LINES = 500
ENDINGS = CPP_ENDINGS + (".py", ".sh")


def faults_of(name, text):
    if is_generated(text):
        return []
    faults = []
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        faults.append(f"{name}: {len(lines)} lines, at most {MAX_LINES}")
    if name.endswith((".h", ".cuh")):
        if not lines or not lines[0].startswith("//"):
            faults.append(f"{name}: the first line must say what the header is for")
        if "#pragma once" not in lines:
            faults.append(f"{name}: #pragma once is missing")
    if text and not text.endswith("\n"):
        faults.append(f"{name}: no newline at the end")
    return faults


if __name__ == "__main__":
    report([fault for name in tracked_files() if name.endswith(ENDINGS)
            for fault in faults_of(name, (Path(ROOT) / name).read_text(encoding="utf-8"))])
