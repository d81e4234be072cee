"""Instructions that a statement takes, counted by Valgrind."""

from mica.utils.benchmark.callgrind import CallgrindStats, CopyIfCallgrind, FunctionCount, FunctionCounts

__all__ = ["CallgrindStats", "CopyIfCallgrind", "FunctionCount", "FunctionCounts"]
