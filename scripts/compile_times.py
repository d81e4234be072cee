"""Prints how long each object of a Ninja build took, slowest first, and fails when one exceeds the budget."""

import argparse
from pathlib import Path


def compile_seconds(log: Path) -> dict[str, float]:
    """Seconds of the latest run of every step that made an object file; later lines of the log replace earlier ones."""
    seconds = {}
    for line in log.read_text().splitlines():
        if line.startswith("#"):
            continue
        start, end, _, output, _ = line.split("\t")
        if output.endswith(".o"):
            seconds[output] = (int(end) - int(start)) / 1000
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path, help="the build directory")
    parser.add_argument("--budget", type=float, default=40, help="seconds one source file may take")
    parser.add_argument("--top", type=int, default=20, help="how many of the slowest to print")
    arguments = parser.parse_args()

    seconds = compile_seconds(arguments.build / ".ninja_log")
    slowest = sorted(seconds.items(), key=lambda item: -item[1])
    for output, spent in slowest[: arguments.top]:
        print(f"{spent:7.1f} s  {output}")
    print(f"{sum(seconds.values()):7.1f} s  {len(seconds)} files together")
    if slowest and slowest[0][1] > arguments.budget:
        raise SystemExit(f"{slowest[0][0]} takes longer than {arguments.budget:g} s to compile")


if __name__ == "__main__":
    main()
