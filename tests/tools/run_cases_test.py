"""Runs handed job cases (cases/run_cases.py) with a real model. Exit code 77: skipped."""
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
CASES = Path(os.environ.get("BATCHMILL_CASES", SOURCE.parent / "shared" / "cases"))
MODEL = Path(os.environ.get("BATCHMILL_MODEL", Path.home() /
                            ".cache/batchmill/SmolLM2-135M-Instruct.Q4_1.gguf"))

for path, what in ((CASES / "run_cases.py", "BATCHMILL_CASES"), (MODEL, "BATCHMILL_MODEL")):
    if not path.is_file():
        print(f"skipped: no {path} ({what} says where it is)")
        sys.exit(77)
sys.exit(subprocess.run([sys.executable, str(CASES / "run_cases.py"), "--bin",
                         os.environ["BATCHMILL_BIN"], "--model", str(MODEL)], check=False).returncode)
