"""Runs of the examples, each in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import mica
import pytest

HERE = Path(__file__).resolve().parent
ON_MICA = [sys.executable, "-m", "mica", "run"]
ON_TORCH = [sys.executable]
PROGRAMS = Path(mica._C.__file__).resolve().parents[2] / "examples" / "cpp"
SMALL_GPT = ["--steps", "20", "--batch", "4", "--context", "24", "--width", "32", "--layers", "2"]


def output(command):
    """The lines that a program printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run(python, name, *arguments):
    """What an example printed, and its losses."""
    *printed, losses = output([*python, str(HERE / "run_example.py"), name, *arguments])
    return printed, json.loads(losses)


def run_cpp(name, path, *arguments):
    """The losses of a C++ example, which saves its checkpoint at the path."""
    program = PROGRAMS / name
    if not program.exists():
        pytest.skip("the C++ examples are not built (MICA_EXAMPLES)")
    output([str(program), *arguments, "--save", str(path)])
    return mica.load(path)["losses"].tolist()


def opened_gpt(python, path):
    """Whether the C++ GPT's names are those of the Python model, in order, and the loss it then has there."""
    return json.loads(output([*python, str(HERE / "open_gpt.py"), str(path), "24", "32", "2"])[-1])
