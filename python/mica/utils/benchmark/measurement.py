"""What was measured, and what follows from it."""

import contextlib
import dataclasses
import math
import statistics
import textwrap

from mica import _C

_WARN_ABOVE = 0.1  # interquartile range by median
_WARN_STRONGLY_ABOVE = 0.25
_MOST_SIGNIFICANT_FIGURES = 4
_LEAST_INTERVAL = 25e-9  # seconds: no clock is better
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}


@dataclasses.dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """The statement that a measurement is of, and how it is called in tables."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self):
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt
        return f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self):
        if self.setup in ("", "pass"):
            return ""
        return f"setup:\n{textwrap.indent(self.setup, '  ')}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self):
        parts = [part for part in (self.title, self.description, self.setup_str()) if part]
        return "\n".join(part + "\n" if "\n" in part else part for part in parts)


_FORWARDED = {field.name for field in dataclasses.fields(TaskSpec)}


def _quantile(ordered, fraction):
    place = fraction * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclasses.dataclass(init=True, repr=False)
class Measurement:
    """Times of a statement: raw_times of number_per_run runs each."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict | None = None

    def __getattr__(self, name):
        if name in _FORWARDED:
            return getattr(self.task_spec, name)
        raise AttributeError(f"'Measurement' object has no attribute {name!r}")

    @property
    def times(self):
        return [each / self.number_per_run for each in self.raw_times]

    def _quantile(self, fraction):
        return _quantile(sorted(self.times), fraction)

    @property
    def median(self):
        return self._quantile(0.5)

    @property
    def mean(self):
        return statistics.fmean(self.times)

    @property
    def iqr(self):
        """The interquartile range."""
        return self._quantile(0.75) - self._quantile(0.25)

    @property
    def significant_figures(self):
        """How many digits of the median mean something, by a rough estimate from the middle half of the times."""
        n = len(self.raw_times)
        middle = sorted(self.times)[n // 4 : math.ceil(3 * n / 4)]
        interval = max(1.645 * statistics.pstdev(middle) / math.sqrt(len(middle)), _LEAST_INTERVAL)
        digits = math.floor(math.log10(self.median / interval))
        return min(max(digits, 1), _MOST_SIGNIFICANT_FIGURES)

    def meets_confidence(self, threshold=_WARN_ABOVE):
        """Whether the times are that close together."""
        return self.iqr / self.median < threshold

    @property
    def has_warnings(self):
        return not self.meets_confidence()

    @property
    def title(self):
        return self.task_spec.title

    @property
    def env(self):
        return "Unspecified env" if self.task_spec.env is None else self.task_spec.env

    @property
    def as_row_name(self):
        return self.sub_label or self.stmt or "[Unknown]"

    def __repr__(self):
        n = len(self.raw_times)
        unit, scale = select_unit(self.median)
        lines = [
            f"<torch.utils.benchmark.utils.common.Measurement object at {id(self):#x}>",
            self.task_spec.summarize(),
            f"  {'Median: ' if n > 1 else ''}{self.median / scale:.2f} {unit}",
        ]
        if n >= 4:
            low, high = self._quantile(0.25) / scale, self._quantile(0.75) / scale
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})")
        threads = f"{self.num_threads} thread{'s' if self.num_threads > 1 else ''}"
        runs = f"{self.number_per_run} runs {'per measurement,' if n > 1 else ','}"
        lines.append(f"  {n} measurement{'s' if n > 1 else ''}, {runs} {threads}")
        if self.has_warnings:
            lines.append(
                f"  WARNING: Interquartile range is {self.iqr / self.median * 100:.1f}% of the median measurement."
            )
            strong = not self.meets_confidence(_WARN_STRONGLY_ABOVE)
            reason = "suggests significant environmental influence" if strong else "could indicate system fluctuation"
            lines.append(f"           This {reason}.")
        return "\n".join(lines)

    @staticmethod
    def merge(measurements):
        """One measurement for all that are of the same task."""
        groups = {}
        for each in measurements:
            groups.setdefault(each.task_spec, []).extend(each.times)
        return [Measurement(1, times, task) for task, times in groups.items()]


def select_unit(t):
    """The unit in which a time in seconds is best said, and the unit's length."""
    power = math.floor(math.log10(t) / 3) if t > 0 else -3
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(power, "ns" if power < -3 else "s")
    return unit, _UNITS[unit]


def unit_to_english(u):
    return {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}[u]


def trim_sigfig(x, n):
    """The number rounded to n significant figures."""
    if n != int(n):
        raise AssertionError("Number of significant figures must be an integer")
    scale = 10.0 ** (math.ceil(math.log10(abs(x))) - n)
    return float(round(x / scale) * scale)


def ordered_unique(elements):
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n):
    """Use n threads for a while."""
    before = _C.get_num_threads()
    try:
        _C.set_num_threads(n)
        yield
    finally:
        _C.set_num_threads(before)
