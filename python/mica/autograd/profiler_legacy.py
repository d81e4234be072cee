"""The profiler's older name."""

from mica.autograd.profiler import profile  # noqa: F401
