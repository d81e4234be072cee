"""Runs the programs of packages on Mica and on torch, compares what they print, and writes docs/packages.md.

usage: run.py --mica PYTHON --torch PYTHON [--packages FOLDER] [--only NAME...] [--write FILE] [--keep FILE]
       run.py --mica PYTHON --compiled HOW [--only NAME...] [--keep FILE]

PYTHON of --mica has the packages and mica, and no torch; that of --torch has torch, and finds the packages in FOLDER.
A program prints lines of words and numbers. Words must be the same; numbers may differ by a part in 5,000, which float32
sums in another order come to over a few steps of training. With --keep, results are kept in a file as they come, and a
run that was interrupted goes on where it was. `make test-packages` calls this.

With --compiled, programs run on Mica alone, with compilation switched on for all of them (compiled.py says how) and
without: every digit must be the same.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stand_ins import make

PROGRAMS = Path(__file__).parent / "programs"
TOLERANCE = 2e-4
NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?|-?\d+e[+-]?\d+|\bnan\b|-?\binf\b")
# Before the program: the stand-ins for CUDA's libraries, without which torchvision and torchaudio find no operators.
TORCH_PRELUDE = """
import ctypes, os, runpy, sys, torch
for path in filter(None, os.environ["MICA_STAND_INS"].split(":")):
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
LIMIT_S = 900  # of one program on one side
# What a package is called on PyPI, where that is not the name it is imported by.
DISTRIBUTIONS = {
    "pyro": "pyro-ppl", "ignite": "pytorch-ignite", "torchcrf": "pytorch-crf", "open_clip": "open_clip_torch",
}  # fmt: skip


def difference(mica: str, torch: str) -> tuple[float, str]:
    """The largest relative difference of numbers, and the first line where anything else differs."""
    largest = 0.0
    ours, theirs = mica.splitlines(), torch.splitlines()
    for i in range(max(len(ours), len(theirs))):
        a, b = (lines[i] if i < len(lines) else "" for lines in (ours, theirs))
        if NUMBER.sub("#", a) != NUMBER.sub("#", b):
            return largest, f"Mica: {a}\ntorch: {b}"
        for x, y in zip(map(float, NUMBER.findall(a)), map(float, NUMBER.findall(b)), strict=True):
            if x == y or (x != x and y != y):
                continue
            relative = abs(x - y) / max(abs(x), abs(y), 1e-3)
            largest = max(largest, relative)
            if not relative <= TOLERANCE:
                return largest, f"Mica: {a}\ntorch: {b}"
    return largest, ""


def run(command: list[str], extra: dict[str, str]) -> tuple[subprocess.CompletedProcess, float]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore",
                   "OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "", "PYTHONHASHSEED": "0", **extra}  # fmt: skip
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        done = subprocess.CompletedProcess(command, 1, "", f"not done after {LIMIT_S} s")
    return done, time.perf_counter() - start


def packages_of(program: Path) -> list[str]:
    """The package a program is about is the first word of its description."""
    first = program.read_text().split('"""')[1].split(":")[0].strip()
    return [first.split("'")[0].split()[0]]


def version(python: str, package: str) -> str:
    ask = f"import importlib.metadata as m; print(m.version({DISTRIBUTIONS.get(package, package)!r}))"
    return subprocess.run([python, "-c", ask], capture_output=True, text=True).stdout.strip()


def compare_compiled(given, kept: dict[str, str]) -> int:
    """How many of the programs print something else when all of them is compiled."""
    failed = 0
    for program in sorted(PROGRAMS.glob("*.py")):
        if program.stem in kept or (given.only and program.stem not in given.only):
            continue
        eager, first = run([given.mica, "-m", "mica", "run", str(program)], {})
        compiled, second = run([given.mica, str(PROGRAMS.parent / "compiled.py"), given.compiled, str(program)], {})
        if eager.returncode or compiled.returncode:
            which = eager if eager.returncode else compiled
            result, detail = "eager failed" if which is eager else "fails", which.stderr[-2000:]
        else:
            pairs = itertools.zip_longest(eager.stdout.splitlines(), compiled.stdout.splitlines(), fillvalue="")
            detail = "\n".join(f"eager: {a}\ncompiled: {b}" for a, b in pairs if a != b)
            result = f"differs, by {difference(compiled.stdout, eager.stdout)[0]:.0e}" if detail else "the same"
        failed += bool(detail)
        print(f"{program.stem:32} {result:22} eager {first:6.1f} s, compiled {second:6.1f} s", flush=True)
        if detail:
            print(detail, flush=True)
        elif given.keep:
            kept[program.stem] = result
            given.keep.write_text(json.dumps(kept, indent=1))
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mica", required=True, help="a Python with mica and the packages")
    parser.add_argument("--torch", help="a Python with torch")
    parser.add_argument(
        "--compiled", choices=("modules", "whole", "graphs", "replays"), help="compare with compiled programs"
    )
    parser.add_argument("--packages", default="", help="the folder of the packages, for the Python with torch")
    parser.add_argument("--only", nargs="*", default=[], help="names of programs")
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--keep", type=Path, help="a file of results: programs that are in it are not run again")
    given = parser.parse_args()
    kept = json.loads(given.keep.read_text()) if given.keep and given.keep.exists() else {}
    if given.compiled:
        return bool(compare_compiled(given, kept))
    if not given.torch:
        parser.error("--torch says which Python has torch")
    rows, failed = [], 0
    ask = "import os, torch; print(os.path.join(os.path.dirname(torch.__file__), 'lib'))"
    libraries = Path(
        subprocess.run([given.torch, "-W", "ignore", "-c", ask], capture_output=True, text=True).stdout.strip()
    )
    folder = tempfile.mkdtemp()
    stand_ins = make(Path(folder), Path(given.packages), libraries) if given.packages else []
    extra = {
        "PYTHONPATH": given.packages,
        "MICA_STAND_INS": ":".join(map(str, stand_ins)),
        "LD_LIBRARY_PATH": f"{folder}:{libraries}",
    }
    for program in sorted(PROGRAMS.glob("*.py")):
        if given.only and program.stem not in given.only:
            continue
        if program.stem in kept:
            rows.append(kept[program.stem])
            continue
        package = packages_of(program)[0]
        mica, ours = run([given.mica, "-m", "mica", "run", str(program)], {})
        torch, theirs = run([given.torch, "-c", TORCH_PRELUDE, str(program)], extra)
        if torch.returncode:
            result, detail = "torch failed", torch.stderr[-2000:]
        elif mica.returncode:
            result, detail = "fails", mica.stderr[-2000:]
        else:
            largest, detail = difference(mica.stdout, torch.stdout)
            result = "differs" if detail else f"the same to {largest:.0e}" if largest else "the same"
        failed += bool(detail)
        print(f"{program.stem:32} {result:22} Mica {ours:6.1f} s, torch {theirs:6.1f} s", flush=True)
        if detail:
            print(detail, flush=True)
        lines = len(torch.stdout.splitlines())
        what = program.read_text().split('"""')[1].split(":", 1)[-1].strip()
        rows.append(f"| {package} {version(given.mica, package)} | {what} | {result} | {lines} |")
        if given.keep and not detail:
            kept[program.stem] = rows[-1]
            given.keep.write_text(json.dumps(kept, indent=1))
    if given.write and not given.only:
        given.write.write_text(page(rows, given))
    return bool(failed)


def page(rows: list[str], given) -> str:
    python = ".".join(map(str, sys.version_info[:2]))
    torch = subprocess.run(
        [given.torch, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True
    )
    return "\n".join([
        "# Packages that run on Mica", "",
        f"Unmodified packages from PyPI, run with `mica run` in an environment without torch, and beside it on torch "
        f"{torch.stdout.strip()} (Python {python}, {os.uname().machine}).",
        "Each program of tests/packages/programs prints losses, generated tokens, shapes and sums. `make test-packages` runs "
        "them all on both",
        "and writes this page: words must be the same, and numbers agree to a part in 5,000.",
        "With `--compiled modules` as PACKAGES_ARGS it compares Mica with itself instead, every outermost call of a module and "
        "every step of an optimizer",
        "compiled; `--compiled whole` compiles the program as a whole, `--compiled graphs` makes graphs of modules, "
        "`--compiled replays` replays their calls as soon as that is right. Every digit must be the same.", "",
        "| package | what runs | result beside torch | lines compared |", "| --- | --- | --- | --- |",
        *sorted(rows, key=str.lower), "", (Path(__file__).parent / "notes.md").read_text(),
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
