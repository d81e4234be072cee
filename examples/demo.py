"""Trains the GPT on Mica for a minute and lets it tell a tale; then, where torch is installed, trains on torch for a moment.

.venv/bin/mica run examples/demo.py
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import gpt

HERE = Path(__file__).resolve().parent


def interpreters_that_may_have_torch():
    named = os.environ.get("TORCH_PYTHON")
    return [p for p in (named, HERE.parent / ".venv-torch" / "bin" / "python", sys.executable) if p]


def without_mica():
    """The environment for a program that has to find the real torch. Under `mica run`, children would find Mica instead."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def find_torch():
    """An interpreter in which `import torch` imports the real torch, if there is one."""
    for python in interpreters_that_may_have_torch():
        asked = [str(python), "-c", "import torch, sys; sys.exit('mica' in sys.modules)"]
        try:
            done = subprocess.run(asked, capture_output=True, timeout=120, check=False, env=without_mica())
            if done.returncode == 0:
                return str(python)
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None


def speed_of(command, environment=None):
    """Tokens a second of a run, from the last line but one that it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE, env=environment)
    return int(re.search(r"([\d,]+) tokens a second", done.stdout)[1].replace(",", ""))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--compare-seconds", type=float, default=10.0, help="0: do not look for torch")
    options = parser.parse_args(arguments)

    print("A GPT of characters learns to tell tales\n")
    gpt.main(["--minutes", str(options.minutes), "--steps", "1000000"])
    if not options.compare_seconds:
        return
    python = find_torch()
    if python is None:
        print("\nNo torch here to compare with; make test-torch installs one, or set TORCH_PYTHON.")
        return
    print(f"\nThe same program for {options.compare_seconds:.0f} s each, in processes of their own:")
    rest = ["gpt.py", "--minutes", str(options.compare_seconds / 60), "--steps", "1000000", "--tell", "0"]
    ours = speed_of([sys.executable, "-m", "mica", *rest])
    theirs = speed_of([python, *rest], without_mica())
    print(f"  mica   {ours:8,} tokens a second")
    print(f"  torch  {theirs:8,} tokens a second   ({ours / theirs:.2f}x)")


if __name__ == "__main__":
    main()
