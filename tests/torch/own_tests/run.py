#!/usr/bin/env python3
"""Runs the tests of torch's own repository on torch and on Mica, and writes a page: how many of those that torch passes Mica passes too.

usage: run.py --tests FOLDER --python INTERPRETER --mica PATH [--only NAME ...] [--every N] [--offset K] [--without TEXT] [--limit S] [--results FOLDER]

FOLDER is `test/` of a copy of torch's repository (Debian's source package pytorch has one); nothing is fetched. INTERPRETER has torch's wheel,
whose testing utilities run on both libraries, and numpy, expecttest and hypothesis. Each file has processes of its own; a test that
ends its process is counted, and another process goes on behind it. What torch passes is kept in the results' folder, and asked for
again only where it is missing. `--every 3` takes each third of a file's tests, in the order of their names, on both libraries,
and `--offset 1` begins with the second of them, so that several runs together take all.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

# The test files of what every program uses. Others are run by --only.
FILES = (HERE / "files.txt").read_text().split()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tests", type=Path, required=True, help="the folder test/ of torch's repository")
    parser.add_argument("--python", required=True, help="an interpreter that has torch")
    parser.add_argument("--mica", type=Path, required=True, help="the folder that holds the package mica")
    parser.add_argument(
        "--only",
        nargs="*",
        help="files to run, such as test_nn or nn/test_pooling; with #TEXT, tests whose names have TEXT",
    )
    parser.add_argument(
        "--every", type=int, default=1, help="take each Nth of a file's tests, in the order of their names"
    )
    parser.add_argument("--offset", type=int, default=0, help="with --every, how many tests to pass over first")
    parser.add_argument("--without", help="leave tests out whose names have this text, such as compile")
    parser.add_argument("--limit", type=float, default=60, help="seconds that a test may take")
    parser.add_argument("--results", type=Path, default=Path("build/torch_tests"))
    options = parser.parse_args()
    if options.every < 1 or not 0 <= options.offset < options.every:
        parser.error("--every wants a number above zero, and --offset one from zero up to it")
    return options


def wheel_of(python):
    """Where the interpreter's torch lies. It is not imported for that."""
    code = "import importlib.machinery as m; print(m.PathFinder.find_spec('torch').submodule_search_locations[0])"
    environment = {**os.environ, "PYTHONPATH": ""}
    return subprocess.run(
        [python, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def read(outcomes):
    """The last word about each test of a file."""
    found = {}
    if outcomes.exists():
        for line in outcomes.read_text().splitlines():
            row = json.loads(line)
            found[row["name"]] = row
    return found


def run_file(options, wheel, library, file, outcomes, names=None):
    """Runs a file's tests, in as many processes as it takes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MICA_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if library == "mica":
        as_torch = options.mica / "mica" / "_as_torch" / "path"  # processes that a test starts import Mica too
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(as_torch), str(options.mica), environment.get("PYTHONPATH", "")]
        )
    command = [
        options.python,
        str(HERE / "worker.py"),
        library,
        str(options.tests),
        f"{file}.py",
        str(outcomes),
        str(options.limit),
        wheel,
    ]
    command += [str(names)] if names else []
    outcomes.parent.mkdir(parents=True, exist_ok=True)
    started = None
    with open(outcomes, "a") as out:
        out.write(json.dumps({"name": "", "outcome": "begin"}) + "\n")
    while True:
        with open(outcomes.with_suffix(".log"), "a") as log:
            place = {"cwd": options.tests, "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            child = subprocess.Popen(command, env=environment, start_new_session=True, **place)
            watch(child, outcomes, options.limit)
        rows = read(outcomes)
        last = rows.get("", {}).get("outcome")
        if last in ("end", "import"):
            return rows
        lost = [name for name, row in rows.items() if row["outcome"] == "started"]
        if not lost and started == len(rows):
            return rows  # it ends where no test runs
        started = len(rows)
        with open(outcomes, "a") as out:
            for name in lost:
                reason = f"it ends the process ({child.returncode})"
                out.write(json.dumps({"name": name, "outcome": "failed", "reason": reason, "line": ""}) + "\n")


def watch(child, outcomes, limit):
    """Waits for a process, and kills it where nothing has been written for the time that a test may take and more."""
    while child.poll() is None:
        time.sleep(0.2)
        written = outcomes.stat().st_mtime if outcomes.exists() else time.time()
        if time.time() - written > limit + 120:
            os.killpg(child.pid, 9)
            child.wait()


def named(options, wheel, file, text):
    """The tests of a file that are asked for: those whose names have the text, or each Nth."""
    listed = options.results / "listed" / f"{file.replace('/', '.')}.jsonl"
    if read(listed).get("", {}).get("outcome") != "end":
        run_file(options, wheel, "list", file, listed)
    names = sorted(name for name, row in read(listed).items() if row["outcome"] == "listed")
    names = [name for name in names if not options.without or options.without not in name]
    return [name for name in names if text in name] if text else names[options.offset :: options.every]


def shortened(reason):
    """A reason without what differs from test to test: numbers, names in quotes, addresses."""
    reason = re.sub(r"0x[0-9a-f]+|-?\d[\d.e+-]*", "N", reason)
    return re.sub(r"\s+", " ", reason)[:110]


def page(results):
    """The page of results: a table by file, and the reasons of failures by their number."""
    lines = [
        "# torch's own tests on Mica",
        "",
        "| file | passed | of those torch passes | |",
        "| --- | --- | --- | --- |",
    ]
    total = collections.Counter()
    reasons = collections.defaultdict(list)
    for file, (ours, chosen) in results.items():
        passed = sum(ours.get(name, {}).get("outcome") == "passed" for name in chosen)
        total.update(passed=passed, of=len(chosen))
        lines.append(f"| {file} | {passed} | {len(chosen)} | {100 * passed / max(1, len(chosen)):.1f} % |")
        for name in chosen:
            row = ours.get(
                name, {"outcome": "failed", "reason": ours.get("", {}).get("reason", "it is not there"), "line": ""}
            )
            if row["outcome"] != "passed":
                reason = ("skipped: " if row["outcome"] == "skipped" else "") + row["reason"]
                reasons[shortened(reason)].append((file, name, reason, row["line"]))
    lines.append(f"| all | {total['passed']} | {total['of']} | {100 * total['passed'] / max(1, total['of']):.1f} % |")
    lines += ["", "## Failures by reason", ""]
    for cases in sorted(reasons.values(), key=len, reverse=True):
        lines.append(f"- {len(cases)}: {cases[0][2][:300]}")
        lines += [f"  - {file} {name} | {reason[:170]} | {line}" for file, name, reason, line in cases]
    return "\n".join(lines) + "\n"


def main():
    options = arguments()
    options.tests, options.mica, options.results = (
        options.tests.resolve(),
        options.mica.resolve(),
        options.results.resolve(),
    )
    wheel = wheel_of(options.python)
    results = {}
    for wanted in options.only or FILES:
        file, _, text = wanted.partition("#")
        if not (options.tests / f"{file}.py").exists():
            print(f"{file}: is not there", file=sys.stderr)
            continue
        names = options.results / "names" / f"{file.replace('/', '.')}.txt"
        names.parent.mkdir(parents=True, exist_ok=True)
        theirs = run_on_torch(options, wheel, file, named(options, wheel, file, text), names)
        chosen = [name for name, row in theirs.items() if row["outcome"] == "passed"]
        names.write_text("\n".join(chosen) + "\n")
        outcomes = options.results / "mica" / f"{file.replace('/', '.')}.jsonl"
        outcomes.unlink(missing_ok=True)
        begin = time.monotonic()
        ours = run_file(options, wheel, "mica", file, outcomes, names)
        passed = sum(ours.get(name, {}).get("outcome") == "passed" for name in chosen)
        print(f"{file}: {passed} of {len(chosen)} in {time.monotonic() - begin:.0f} s", flush=True)
        results[file] = (ours, chosen)
    (options.results / "results.md").write_text(page(results))
    print(options.results / "results.md")


def run_on_torch(options, wheel, file, wanted, names):
    """What torch says of those tests of a file, from earlier runs and, where they say nothing, from one now."""
    outcomes = options.results / "torch" / f"{file.replace('/', '.')}.jsonl"
    rows = read(outcomes)
    if not all(name in rows for name in wanted):
        names.write_text("\n".join(wanted) + "\n")
        rows = run_file(options, wheel, "torch", file, outcomes, names)
    return {name: rows[name] for name in wanted if name in rows}


if __name__ == "__main__":
    main()
