"""Runs one of the examples and prints its losses as the last line, as JSON: run_example.py gpt --steps 10."""

import importlib
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples")]

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    losses = importlib.import_module(name).main(arguments)
    print("\n" + json.dumps(losses))
