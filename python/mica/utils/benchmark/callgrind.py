"""Instructions that a statement takes, counted by Valgrind's Callgrind in a process of its own."""

import collections
import dataclasses
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

from mica import _C
from mica.utils.benchmark.measurement import TaskSpec


class FunctionCount(NamedTuple):
    """Instructions of a function."""

    count: int
    function: str


def _from_dict(counts, inclusive):
    return FunctionCounts(tuple(sorted((FunctionCount(c, f) for f, c in counts.items() if c), reverse=True)), inclusive)


@dataclasses.dataclass(repr=False, eq=False, frozen=True)
class FunctionCounts:
    """Instructions by function, the most first. Inclusive ones hold what a function calls."""

    _data: tuple
    inclusive: bool
    truncate_rows: bool = True
    _linewidth: int | None = None

    def __iter__(self):
        yield from self._data

    def __len__(self):
        return len(self._data)

    def __getitem__(self, item):
        found = self._data[item]
        return FunctionCounts(found, self.inclusive, truncate_rows=False) if isinstance(item, slice) else found

    def __repr__(self):
        width = max((len(str(each.count)) + (each.count < 0) for each in self), default=0)
        room = max((self._linewidth or 80) - width - 4, 40)
        lines = []
        for count, name in self:
            if len(name) > room:
                left = (room - 5) // 2
                name = f"{name[:left]} ... {name[-(room - left - 5) :]}"
            lines.append(f"  {count:>{width}}  {name}")
        if self.truncate_rows and len(lines) > 18:
            lines = [*lines[:9], "...".rjust(width + 2), *lines[-9:]]
        if not self.inclusive:
            lines += ["", f"Total: {self.sum()}"]
        return "\n".join([object.__repr__(self), *lines])

    def _merge(self, other, sign):
        if self.inclusive != other.inclusive:
            raise AssertionError("Cannot merge inclusive and exclusive counts.")
        counts = collections.Counter()
        for count, name in self:
            counts[name] += count
        for count, name in other:
            counts[name] += sign * count
        return _from_dict(counts, self.inclusive)

    def __add__(self, other):
        return self._merge(other, 1)

    def __sub__(self, other):
        return self._merge(other, -1)

    def __mul__(self, other):
        return _from_dict({name: int(count * other) for count, name in self}, self.inclusive)

    def transform(self, map_fn):
        """The counts under other names. Counts that get the same name are added up."""
        counts = collections.Counter()
        for count, name in self:
            counts[map_fn(name)] += count
        return _from_dict(counts, self.inclusive)

    def filter(self, filter_fn):
        """The functions of whose name filter_fn is true."""
        return FunctionCounts(tuple(each for each in self if filter_fn(each.function)), self.inclusive)

    def sum(self):
        return sum(each.count for each in self)

    def denoise(self):
        """Without Python's lookups of names, which vary from run to run."""
        return self.filter(lambda name: "dictobject.c:lookdict_unicode" not in name)


@dataclasses.dataclass(repr=False, eq=False, frozen=True)
class CallgrindStats:
    """The instruction counts of a statement, and of an empty one as the baseline."""

    task_spec: TaskSpec
    number_per_run: int
    built_with_debug_symbols: bool
    baseline_inclusive_stats: FunctionCounts
    baseline_exclusive_stats: FunctionCounts
    stmt_inclusive_stats: FunctionCounts
    stmt_exclusive_stats: FunctionCounts
    stmt_callgrind_out: str | None = None

    def __repr__(self):
        base = self.baseline_exclusive_stats
        threads = self.task_spec.num_threads
        return "\n".join(
            [
                object.__repr__(self),
                self.task_spec.summarize(),
                f"  {'':>25}All{'':>10}Noisy symbols removed",
                f"    Instructions: {self.counts():>12}{'':>15}{self.counts(denoise=True):>12}",
                f"    Baseline:     {base.sum():>12}{'':>15}{base.denoise().sum():>12}",
                f"{self.number_per_run} runs per measurement, {threads} thread{'s' if threads > 1 else ''}",
            ]
        )

    def stats(self, inclusive=False):
        """Instructions by function."""
        return self.stmt_inclusive_stats if inclusive else self.stmt_exclusive_stats

    def counts(self, *, denoise=False):
        """Instructions in all."""
        return (self.stmt_exclusive_stats.denoise() if denoise else self.stmt_exclusive_stats).sum()

    def delta(self, other, inclusive=False):
        """What this takes more than another, by function."""
        return self.stats(inclusive) - other.stats(inclusive)

    def as_standardized(self):
        """With names that do not depend on where things were built: without folders and libraries."""

        def plain(counts):
            return counts.transform(
                lambda name: re.sub(r"\s\[.+\]$", "", re.sub(r"^.+/(?=(Python|Objects)/)", "", name))
            )

        fields = ("baseline_inclusive", "baseline_exclusive", "stmt_inclusive", "stmt_exclusive")
        changed = {f"{each}_stats": plain(getattr(self, f"{each}_stats")) for each in fields}
        return dataclasses.replace(self, stmt_callgrind_out=None, **changed)


class CopyIfCallgrind:
    """Marks a global of a Timer that may be sent to the process that counts as a pickled copy."""

    def __init__(self, value, *, setup=None):
        self._value, self._setup = value, setup

    @property
    def value(self):
        return self._value

    @property
    def setup(self):
        return self._setup

    @staticmethod
    def unwrap_all(globals):
        return {name: each.value if isinstance(each, CopyIfCallgrind) else each for name, each in globals.items()}


_PLAIN = (str, bytes, bool, int, float, complex, type(None))


def _payload(globals):
    """The globals that the other process gets: plain values, and values that are marked for copying."""
    sent, setups = {}, []
    for name, each in globals.items():
        if name == "torch":
            continue
        if isinstance(each, CopyIfCallgrind):
            if each.setup:
                setups.append(each.setup)
            each = each.value
        elif not isinstance(each, _PLAIN):
            raise ValueError(
                f"`{name}` is a {type(each).__name__}: what is not a plain value has to be made in setup, or be wrapped in "
                "CopyIfCallgrind, to be counted in another process"
            )
        sent[name] = pickle.dumps(each)
    return sent, setups


_SCRIPT = """
import pickle, sys
import mica
with open(sys.argv[1], "rb") as file:
    job = pickle.load(file)
names = {"torch": mica}
for setup in job["setups"]:
    exec(setup, names)
names.update({name: pickle.loads(value) for name, value in job["globals"].items()})
mica.set_num_threads(job["threads"])
exec(compile(job["setup"], "<setup>", "exec"), names)
body = "\\n".join("        " + line for line in job["stmt"].split("\\n"))
exec(compile(f"def run(count):\\n    for _ in range(count):\\n{body}\\n", "<stmt>", "exec"), names)
run = names["run"]
run(max(job["number"] // 10, 5))
import gc
gc.collect()
gc.disable()
mica._C._counted_region(lambda: run(job["number"]))
"""


def _parsed(path, inclusive):
    """What callgrind_annotate says of a file."""
    command = ["callgrind_annotate", "--threshold=100", "--show-percs=no", "--auto=no"]
    text = subprocess.run(
        [*command, f"--inclusive={'yes' if inclusive else 'no'}", path], check=True, capture_output=True, text=True
    ).stdout
    counts, past_head = collections.Counter(), False
    for line in text.split("\n"):
        if "PROGRAM TOTALS" in line or re.match(r"\s*Ir\s+file:function", line):
            past_head = past_head or "file:function" in line
            continue
        found = re.match(r"\s*([0-9,]+)\s+(.+:.+)$", line)
        if past_head and found:
            counts[re.sub(r" \[/.*/(.+)\]$", r" [\1]", found[2])] += int(found[1].replace(",", ""))
    return _from_dict(counts, inclusive)


def _count(task, globals, number, folder, name):
    sent, setups = _payload(globals)
    job = {
        "globals": sent,
        "setups": setups,
        "setup": task.setup,
        "stmt": task.stmt,
        "number": number,
        "threads": task.num_threads,
    }
    job_path, script, out = (os.path.join(folder, f"{name}.{kind}") for kind in ("job", "py", "out"))
    with open(job_path, "wb") as file:
        pickle.dump(job, file)
    with open(script, "w", encoding="utf-8") as file:
        file.write(_SCRIPT)
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--dump-line=no", "--dump-instr=no"]
    command += ["--collect-atstart=no", "--toggle-collect=mica_counted_region", sys.executable, script, job_path]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode or not os.path.exists(out):
        raise OSError(f"Failed to collect callgrind profile:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return out


def collect(task, globals, number, *, collect_baseline, retain_out_file):
    """The instructions of `number` runs of a task's statement."""
    if shutil.which("valgrind") is None or shutil.which("callgrind_annotate") is None:
        raise OSError("Could not find `valgrind`: instructions are counted by it (on Debian: apt install valgrind)")
    if _C._build_info()["compiled_targets"] == "AVX3":
        raise OSError(
            "Valgrind does not know AVX-512, and this build of the library has nothing else: instructions are counted "
            "in one with kernels for every machine (MICA_VECTOR_SETS=all, as wheels and `make build PRESET=strict` are)"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = _count(task, globals, number, folder, "stmt")
        inclusive, exclusive = _parsed(path, True), _parsed(path, False)
        with open(path, encoding="utf-8") as file:
            raw = file.read() if retain_out_file else None
        nothing = FunctionCounts((), True), FunctionCounts((), False)
        if collect_baseline:
            path = _count(dataclasses.replace(task, stmt="pass", setup="pass"), {}, number, folder, "baseline")
            nothing = _parsed(path, True), _parsed(path, False)
    return CallgrindStats(task, number, False, *nothing, inclusive, exclusive, raw)
