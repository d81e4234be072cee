"""The page of benchmarks: groups by machine as plots, rows on demand, from the files of bench/results."""

from __future__ import annotations

import html
import math
import re
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
ROW = re.compile(r"^(\w+)/(\S+)\s+([\d.]+) us\s+([\d.]+) us\s+peer/mine\s+([\d.]+)x")

MACHINES = {
    "x86_64_two_cores": "Two cores of a Sapphire Rapids Xeon (AVX-512 and AMX), 2 threads, torch 2.13 with MKL and oneDNN",
    "x86_64_cascade_lake": "Two cores of a Cascade Lake Xeon (AVX-512), 2 threads, torch 2.13 with MKL and oneDNN",
    "x86_64_gpu_machine": "A Xeon of 16 virtual CPUs (AVX-512 and AMX) beside an H200, torch 2.11",
    "aarch64_one_thread": "Neoverse-N1 (aarch64), CPU time of one thread on a loaded machine, torch 2.13 with OpenBLAS and oneDNN",
    "h200_cuda": "An H200 GPU, torch 2.11",
}


@dataclass
class Row:
    group: str
    name: str
    mine: float
    torch: float
    ratio: float


@dataclass
class Run:
    machine: str
    part: str  # "2 threads" where a file holds several runs
    date: str
    rows: list[Row] = field(default_factory=list)

    @property
    def key(self) -> str:
        return self.machine + (f"-{self.part.replace(' ', '-')}" if self.part else "")

    @property
    def title(self) -> str:
        return MACHINES.get(self.machine, self.machine) + (f", {self.part}" if self.part else "")

    def groups(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.group, []).append(row)
        return found


def mean(rows: list[Row]) -> float:
    return math.exp(sum(math.log(max(r.ratio, 1e-3)) for r in rows) / len(rows))


def parse(text: str, machine: str, date: str) -> list[Run]:
    runs = [Run(machine, "", date)]
    for line in text.splitlines():
        threads = re.match(r"#\s*(\d+ threads)\s*$", line)
        if threads:
            runs.append(Run(machine, threads[1], date))
        match = ROW.match(line)
        if match:
            group, name, mine, torch, ratio = match.groups()
            runs[-1].rows.append(Row(group, name, float(mine), float(torch), float(ratio)))
    return [run for run in runs if run.rows]


def git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


@cache
def history() -> dict[str, list[Run]]:
    """Key of a machine's run -> its runs, the oldest first, one for each day that a file was changed on."""
    found: dict[str, dict[str, Run]] = {}
    for path in sorted(RESULTS.glob("*.txt")):
        versions = [line.split() for line in git("log", "--format=%as %h", "--", str(path)).splitlines()]
        for date, commit in reversed(versions):
            text = git("show", f"{commit}:{path.relative_to(ROOT)}")
            for run in parse(text, path.stem, date):
                found.setdefault(run.key, {})[date] = run
        now = parse(path.read_text(), path.stem, "")
        if not versions:  # not a checkout: the files as they are
            found |= {run.key: {"": run} for run in now}
        for key in [k for k, days in found.items() if next(iter(days.values())).machine == path.stem]:
            if key not in {run.key for run in now}:  # a run that is no longer kept
                del found[key]
    order = list(MACHINES)
    ordered = sorted(
        found.items(), key=lambda item: next((i for i, m in enumerate(order) if item[0].startswith(m)), 99)
    )
    return {key: list(days.values()) for key, days in ordered}


def plot(run: Run) -> str:
    """Bars of the groups' means on a logarithmic axis, with a dot for each row; what is under 1x has its own colour."""
    groups = run.groups()
    left, width, step, top = 170, 560, 24, 26
    low, high = 0.5, max(2.0, max(r.ratio for r in run.rows) * 1.1)

    def x(ratio: float) -> float:
        return left + (math.log(max(ratio, low)) - math.log(low)) / (math.log(high) - math.log(low)) * width

    height = top + step * len(groups) + 8
    parts = [
        f'<svg viewBox="0 0 {left + width + 14} {height}" role="img" aria-label="{html.escape(run.title)}" class="bars">'
    ]
    for tick in (0.5, 1, 2, 5, 10, 20, 50, 100):
        if tick <= high:
            at = x(tick)
            strong = ' class="one"' if tick == 1 else ""
            parts.append(f'<line{strong} x1="{at:.1f}" x2="{at:.1f}" y1="{top - 6}" y2="{height - 4}"/>')
            parts.append(f'<text x="{at:.1f}" y="14" text-anchor="middle">{tick:g}x</text>')
    for i, (group, rows) in enumerate(groups.items()):
        y, value = top + i * step, mean(rows)
        kind = "under" if value < 1 else "over"
        start, end = sorted((x(1), x(value)))
        parts.append(f'<text x="{left - 66}" y="{y + 13}" text-anchor="end">{group}</text>')
        parts.append(f'<text class="mean" x="{left - 8}" y="{y + 13}" text-anchor="end">{value:.2f}x</text>')
        parts.append(
            f'<rect class="{kind}" x="{start:.1f}" y="{y + 3}" width="{max(end - start, 1):.1f}" height="12" rx="2"/>'
        )
        for r in rows:
            dot = "under" if r.ratio < 1 else "dot"
            parts.append(
                f'<circle class="{dot}" cx="{x(r.ratio):.1f}" cy="{y + 9}" r="2.4"><title>{r.name}: {r.ratio:g}x</title></circle>'
            )
    return "".join([*parts, "</svg>"])


def rows_table(run: Run) -> str:
    """All rows; each is a place for the reference to link to."""
    lines = ['<div class="rows"><table><thead><tr><th>row</th><th>Mica</th><th>torch</th>']
    lines.append("<th>torch over Mica</th></tr></thead><tbody>")
    for r in run.rows:
        under = ' class="under"' if r.ratio < 1 else ""
        lines.append(
            f'<tr id="{r.group}-{r.name}"{under}><td>{r.group}/{r.name}</td><td>{r.mine:,.2f} us</td>'
            f"<td>{r.torch:,.2f} us</td><td>{r.ratio:.2f}x</td></tr>"
        )
    return "".join([*lines, "</tbody></table></div>"])


def dates_table(runs: list[Run]) -> list[str]:
    if len(runs) < 2:
        return []
    names = list(dict.fromkeys(g for run in runs for g in run.groups()))
    lines = [
        "By date:",
        "",
        "| group | " + " | ".join(run.date for run in runs) + " |",
        "| --- " * (len(runs) + 1) + "|",
    ]
    for name in names:
        cells = [f"{mean(run.groups()[name]):.2f}x" if name in run.groups() else "" for run in runs]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def pages() -> dict[str, str]:
    """The page of plots, and one of rows for each machine."""
    written = {}
    lines = ["# Benchmarks", "", INTRODUCTION, ""]
    behind = []
    for key, runs in history().items():
        last = runs[-1]
        slow = [r for r in last.rows if r.ratio < 1]
        behind += [
            f"| {r.group}/{r.name} | {r.ratio:.2f}x | {last.title} |" for r in sorted(slow, key=lambda r: r.ratio)
        ]
        lines += [f"## {last.title} {{ #{key} }}", ""]
        when = f" of {last.date}" if last.date else ""
        lines += [f"The last run{when}: {len(last.rows)} rows, {len(slow)} of them under 1x.", ""]
        lines += [
            f'<figure class="picture">{plot(last)}</figure>',
            "",
            f"[Every row](benchmarks/{key}.md)",
            "",
            *dates_table(runs),
        ]
        written[f"benchmarks/{key}.md"] = "\n".join(
            [f"# {last.title}", "", f"Every row{when}.", "", rows_table(last), ""]
        )
    lines += ["## Where Mica is slower", "", "Every row under 1x of every machine's last run.", ""]
    lines += ["| row | torch over Mica | machine |", "| --- | --- | --- |", *behind, ""]
    return {"benchmarks.md": "\n".join(lines), **written}


@cache
def rows_by_word() -> dict[str, list[tuple[str, str, float]]]:
    """Word of a row's name -> rows of the first machine: key, name, ratio."""
    found: dict[str, list[tuple[str, str, float]]] = {}
    runs = [versions[-1] for versions in history().values()]
    for run in runs[:2]:
        for r in run.rows:
            name = re.sub(r"_(\d+k?|8|inplace.*|out.*|scalar.*)$", "", re.sub(r"_(\d+k)$", "", r.name))
            for word in {name, name.removeprefix("bf16_").removeprefix("int32_")}:
                found.setdefault(word, []).append(
                    (f"{run.key}.html#{r.group}-{r.name}", f"{r.group}/{r.name}", r.ratio)
                )
    return found


def links(operation: str, up: str) -> str:
    """The rows that measure an operation, for its entry in the reference."""
    rows = rows_by_word().get(operation, [])[:4]
    return ", ".join(f'<a href="{up}benchmarks/{key}">{name} {ratio:.2f}x</a>' for key, name, ratio in rows)


INTRODUCTION = """`make bench` runs the same rows in both libraries, each in a process of its own, taking turns; the better of a row's turns counts. A figure is torch's time over
Mica's: more than 1x means that Mica is faster. A bar is the geometric mean of a group, a dot is a row, and whatever is under 1x has another colour. The hosts are shared, so
that a row moves by a tenth or more from run to run. `bench/results/notebook.md` has what was measured on the way."""
