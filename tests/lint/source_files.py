"""The files of the project that the checks read."""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPP_ENDINGS = (".cpp", ".h", ".cu", ".cuh")


def tracked_files(root=ROOT):
    """Paths relative to the root of what git tracks, or of all files outside build/ without git."""
    try:
        # safe.directory: the clone may belong to another user than the one who tests it.
        listed = subprocess.run(
            ["git", "-c", f"safe.directory={root}", "ls-files", "-z", "--cached", "--others",
             "--exclude-standard"],
            cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
        names = [name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
        names = [n for n in names if not n.startswith(("build/", ".git/")) and "__pycache__" not in n]
    return sorted(name for name in names if (root / name).is_file())


def cpp_files(root=ROOT):
    return [name for name in tracked_files(root) if name.endswith(CPP_ENDINGS)]


def is_generated(text):
    """Tables written by a tool say so in their first lines."""
    return any("enerated by" in line for line in text.splitlines()[:3])


def report(faults):
    """Prints the faults and exits with 1 if there are any."""
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults" if faults else "no faults")
    sys.exit(1 if faults else 0)
