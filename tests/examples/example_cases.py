"""Runs of the examples, each in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

RUNNER = Path(__file__).resolve().parent / "run_example.py"
ON_MICA = [sys.executable, "-m", "mica", "run"]
ON_TORCH = [sys.executable]


def run(python, name, *arguments):
    """What an example printed, and its losses."""
    command = [*python, str(RUNNER), name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    *printed, losses = done.stdout.splitlines()
    return printed, json.loads(losses)
