#!/usr/bin/env python3
"""Who may include whom. The table below is the project's layering; nothing else defines it.

    tools    everything; the only place that picks a backend
    actors   engine, queue, storage; the only place that logs and reads the clock
    config   options.h of each module
    cuda     engine/{backend,tensor,kv_cache,types}.h; cuda/emulation adds Boost.Context
    engine, queue, storage   themselves only; engine adds nlohmann/json (model folders),
                             engine/cpu oneDNN and OpenMP
    tests    everything; nobody includes tests
"""
import re
from pathlib import Path

from source_files import ROOT, cpp_files, report

FOLDERS = ("actors", "config", "cuda", "engine", "queue", "storage", "tests", "tools")

# Project headers (regular expressions over the path) that a folder may include.
OWN = {
    "engine": [r"engine/(?!cpu/).*"],
    "engine/cpu": [r"engine/.*"],
    "queue": [r"queue/.*"],
    "storage": [r"storage/.*"],
    "config": [r"config/.*", r"[a-z]+/options\.h"],
    "actors": [r"actors/.*", r"engine/(?!cpu/).*", r"queue/.*", r"storage/.*"],
    "cuda": [r"cuda/.*", r"engine/(backend|draw|tensor|kv_cache|types)\.h"],
    "cuda/emulation": [r"cuda/.*", r"engine/(backend|draw|tensor|kv_cache|types)\.h"],
    "tools": [r"(?!tests/).*"],
    "tests": [r".*"],
}

# Libraries besides the standard library and the operating system.
LIBRARIES = {
    "engine": [r"nlohmann/.*"],
    "engine/cpu": [r"dnnl.*", r"oneapi/dnnl/.*", r"omp\.h"],
    "queue": [r"zmq\.hp*", r"nlohmann/.*", r"zstd\.h", r"zlib\.h", r"xxhash\.h", r"fmt/.*"],
    "storage": [r"rocksdb/.*", r"xxhash\.h", r"fmt/.*"],
    "config": [r"toml\+\+/.*", r"fmt/.*"],
    "actors": [r"caf/.*", r"spdlog/.*", r"fmt/.*", r"nlohmann/.*", r"xxhash\.h"],
    "cuda": [r"cuda.*", r"cublas.*", r"cooperative_groups.*"],
    "cuda/emulation": [r"boost/context/.*", r"sanitizer/.*"],
    "tools": [r".*"],
    "tests": [r".*"],
}

# The standard library (no dot, no slash), C headers and what Linux itself offers.
SYSTEM = re.compile(
    r"[a-z0-9_]+|(assert|errno|fcntl|float|immintrin|inttypes|limits|malloc|math|poll|pthread|sched|signal|"
    r"stddef|stdint|stdio|stdlib|string|strings|time|unistd|x86intrin|cpuid|pwd|dlfcn|termios)\.h|"
    r"(sys|arpa|netinet|linux)/[a-z_]+\.h")

# Values in, values out: these folders neither log nor read the clock.
CLOCKLESS = ("engine", "queue", "storage")
CLOCK = re.compile(r"(system_clock|steady_clock|high_resolution_clock|[sS]teady|[cC]lock)::now\s*\(|"
                   r"\b(gettimeofday|clock_gettime|localtime(_r)?|gmtime(_r)?)\s*\(|"
                   r"\b(std::)?time\s*\(\s*(nullptr|NULL|0|&)")
LOG = re.compile(r"\bstd::(cout|cerr|clog)\b|\b(fprintf\s*\(\s*stderr|printf\s*\(|puts\s*\()|\bspdlog\b")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def owner_of(name):
    for folder in ("engine/cpu", "cuda/emulation"):
        if name.startswith(folder + "/"):
            return folder
    return name.split("/", 1)[0]


def without_comments(line):
    return line.split("//", 1)[0]


def faults_of(name, text):
    """The faults of one file, each a line of text."""
    owner = owner_of(name)
    if owner not in OWN:
        return [f"{name}: C++ outside the folders {', '.join(FOLDERS)}"]
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{name}:{number}"
        match = INCLUDE.match(line)
        if match:
            header = match.group(2)
            allowed = OWN if header.split("/", 1)[0] in FOLDERS else LIBRARIES
            if any(re.fullmatch(pattern, header) for pattern in allowed[owner]):
                continue
            if allowed is LIBRARIES and SYSTEM.fullmatch(header):
                continue
            faults.append(f"{place}: {owner} may not include {header}")
            continue
        if owner.split("/")[0] in CLOCKLESS:
            code = without_comments(line)
            if CLOCK.search(code):
                faults.append(f"{place}: {owner} may not read the clock")
            if LOG.search(code):
                faults.append(f"{place}: {owner} may not log or print")
    return faults


if __name__ == "__main__":
    report([fault for name in cpp_files()
            for fault in faults_of(name, (Path(ROOT) / name).read_text(encoding="utf-8"))])
