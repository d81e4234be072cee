"""Timers."""

from mica.utils.benchmark.timer import Language, Timer, timer

__all__ = ["Language", "Timer", "timer"]
