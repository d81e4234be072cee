#!/usr/bin/env python3
"""Runs every long check, one after the other, and writes one page of results: a maintainer's evening.

usage: nightly.py [--only NAME ...] [--hours H]

A step that fails does not stop the others. The page is build/nightly/results.md, beside the log of each step.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "nightly"
OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}.get(platform.machine())

# The lines of a log that go into the results. Of each kind the last one counts.
SUMMARIES = [
    re.compile(r"=* ?((?:\d+ (?:failed|passed|skipped|errors?|xfailed|deselected)(?:, )?)+)"),
    re.compile(r"(\d+% tests passed, .*)"),
    re.compile(r"(\d+ of \d+ (?:programs|behaviours).*)"),
    re.compile(r"(mica-\S+\.whl: .*)"),
    re.compile(r"((?:ERROR|WARNING|SUMMARY): \w*Sanitizer.*)"),
]


def steps():
    """Yields (name, targets of make, None) for each step. A step that this machine cannot run has a reason in the place
    of None."""
    yield "test", ["test"], None
    yield "test-torch", ["test-torch", "PYTEST_ARGS=-n 2"], None
    yield "test-distributed", ["test-distributed"], None
    yield "test-packages", ["test-packages"], None
    yield "test-wheel", ["test-wheel"], None
    yield "sanitize-threads", ["sanitize-threads"], None
    yield "sanitize", ["sanitize"], None
    yield "fuzz", ["fuzz", "FUZZ_SECONDS=600"], None
    yield "compiler-fuzz", ["compiler-fuzz"], None
    yield "test-site", ["test-site"], None  # with the Lab's page as WebAssembly
    folder = os.environ.get("TORCH_TESTS")
    yield "torch-tests", ["torch-tests", f"TORCH_TESTS={folder}"], None if folder else "TORCH_TESTS names no folder"
    yield f"test-{OTHER}", [f"test-{OTHER}"], None if OTHER else "only x86-64 and aarch64 are built for each other"
    gpu = shutil.which("nvidia-smi") and shutil.which("nvcc")
    yield "test-cuda", ["test-cuda"], None if gpu else "there is no GPU, or no nvcc"


def summary(log):
    found = {}
    for line in log.read_text(errors="replace").splitlines():
        for pattern in SUMMARIES:
            if match := pattern.search(line):
                found[pattern] = match[1].strip()
    return "; ".join(found.values())


def run(name, targets, deadline):
    log = LOGS / f"{name}.log"
    begin = time.monotonic()
    with log.open("w") as out:
        try:
            left = max(1, deadline - begin)
            code = subprocess.run(["make", *targets], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, timeout=left)
            result = "passed" if code.returncode == 0 else f"failed ({code.returncode})"
        except subprocess.TimeoutExpired:
            result = "out of time"
    return result, (time.monotonic() - begin) / 60, summary(log)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these steps alone")
    parser.add_argument("--hours", type=float, default=12, help="no step runs on after so many hours")
    arguments = parser.parse_args()
    known = list(steps())
    unknown = set(arguments.only or []) - {name for name, _, _ in known}
    if unknown:
        parser.error(f"no step {', '.join(sorted(unknown))}; there are {', '.join(name for name, _, _ in known)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + arguments.hours * 3600
    commit = subprocess.run(["git", "log", "-1", "--format=%h %s"], cwd=ROOT, capture_output=True, text=True).stdout
    page = [
        f"# {time.strftime('%Y-%m-%d %H:%M')}, {platform.machine()}, {commit.strip()}",
        "",
        "| check | result | minutes | what it said |",
        "| --- | --- | --- | --- |",
    ]
    all_passed = True
    for name, targets, reason in known:
        if arguments.only and name not in arguments.only:
            continue
        if reason:
            row = f"| {name} | not run | | {reason} |"
        else:
            print(f"{name} ...", flush=True)
            result, minutes, said = run(name, targets, deadline)
            all_passed = all_passed and result == "passed"
            row = f"| {name} | {result} | {minutes:.0f} | {said} |"
        page.append(row)
        print(row, flush=True)
        (LOGS / "results.md").write_text("\n".join(page) + "\n")
    print(f"\n{LOGS.relative_to(ROOT)}/results.md")
    sys.exit(0 if all_passed else 1)


if __name__ == "__main__":
    main()
