#!/usr/bin/env python3
"""Words that do not belong in the project: work left for later, one person's paths, tickets."""
import re
from pathlib import Path

from source_files import ROOT, report, tracked_files

# These hold the words in order to find them; data are not prose.
EXEMPT = ("tests/lint/", "tests/data/", "tests/fuzz/corpus/", "LICENSE")

WORDS = [
    (re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "work left for later"),
    (re.compile(r"(?<![\w./$}])/(root|home/[a-z]+)/"), "one person's path"),
    (re.compile(r"\b(issue|ticket) #?\d+", re.I), "a ticket's number"),
]


def faults_of(name, text):
    if name.startswith(EXEMPT):
        return []
    return [f"{name}:{number}: {why}: {match.group(0)}"
            for number, line in enumerate(text.splitlines(), 1)
            for pattern, why in WORDS
            for match in pattern.finditer(line)]


def text_of(path):
    """The file's text; empty for binary files."""
    data = path.read_bytes()
    return "" if b"\0" in data else data.decode("utf-8", "replace")


if __name__ == "__main__":
    report([fault for name in tracked_files()
            for fault in faults_of(name, text_of(Path(ROOT) / name))])
