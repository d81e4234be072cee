"""Measures how long statements take, and prints the results as torch does."""

from mica.utils.benchmark.compare import Colorize, Compare
from mica.utils.benchmark.measurement import (
    Measurement,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)
from mica.utils.benchmark.timer import Timer, timer

__all__ = [
    "Colorize",
    "Compare",
    "Measurement",
    "TaskSpec",
    "Timer",
    "ordered_unique",
    "select_unit",
    "set_torch_threads",
    "timer",
    "trim_sigfig",
    "unit_to_english",
]
