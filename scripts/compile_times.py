"""Prints the seconds each object of a Ninja build took, slowest first, and fails when one exceeds the budget.

The log holds elapsed times, which other work on the machine and ccache distort. So the slowest files are compiled once
more, one at a time and without ccache, and the processor time of that is what counts.
"""

import argparse
import json
import os
import resource
import shlex
import subprocess
from pathlib import Path


def logged_seconds(log: Path) -> dict[str, float]:
    """The longest logged time of every object file. A later, shorter time may come from a hit of the cache."""
    seconds: dict[str, float] = {}
    for line in log.read_text().splitlines():
        if line.startswith("#"):
            continue
        start, end, _, output, _ = line.split("\t")
        if output.endswith(".o"):
            seconds[output] = max(seconds.get(output, 0), (int(end) - int(start)) / 1000)
    return seconds


def compile_commands(build: Path) -> dict[str, list[str]]:
    """The command that makes each object file which the build still contains."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        arguments = shlex.split(entry["command"])
        commands[arguments[arguments.index("-o") + 1]] = arguments
    return commands


def processor_seconds(command: list[str], build: Path) -> float:
    arguments = command.copy()
    arguments[arguments.index("-o") + 1] = os.devnull
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, cwd=build, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="the build directory")
    parser.add_argument("--budget", type=float, default=40, help="seconds one source file may take (40)")
    parser.add_argument("--top", type=int, default=10, help="how many files to compile anew (10)")
    arguments = parser.parse_args()

    commands = compile_commands(arguments.build)
    every_step = logged_seconds(arguments.build / ".ninja_log")
    logged = {output: every_step[output] for output in commands.keys() & every_step.keys()}
    slowest = sorted(logged, key=logged.__getitem__, reverse=True)[: arguments.top]
    measured = {output: processor_seconds(commands[output], arguments.build) for output in slowest}
    for output in sorted(measured, key=measured.__getitem__, reverse=True):
        print(f"{measured[output]:7.1f} s  {output}", flush=True)
    print(f"{sum(logged.values()):7.1f} s  {len(logged)} files together, elapsed")
    over = [output for output in slowest if measured[output] > arguments.budget]
    if over:
        raise SystemExit(f"over {arguments.budget:g} s: {', '.join(over)}")


if __name__ == "__main__":
    main()
