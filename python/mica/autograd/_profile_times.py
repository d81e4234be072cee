"""Times and memory of what a profiler saw, and how they are written."""

from collections import namedtuple
from enum import IntEnum

Kernel = namedtuple("Kernel", "name device duration")


class Interval:
    """A span of time in microseconds."""

    def __init__(self, start, end):
        self.start = start
        self.end = end

    def elapsed_us(self):
        return self.end - self.start


def _format_time(microseconds, unit=None):
    """A time in a unit, or in the one that suits it."""
    if unit == "s" or (unit is None and microseconds >= 1e6):
        return f"{microseconds / 1e6:.3f}s"
    if unit == "ms" or (unit is None and microseconds >= 1e3):
        return f"{microseconds / 1e3:.3f}ms"
    return f"{microseconds:.3f}us"


def _format_memory(nbytes):
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"


def _format_share(part, whole):
    return f"{100 * part / whole:.2f}%" if whole else "NaN"


class DeviceType(IntEnum):
    """The device on which an event ran, by torch's numbers."""

    CPU = 0
    CUDA = 1


class _Times:
    """The columns that single events and averages have in common. Memory is the CPU's."""

    use_device = None
    device_type = DeviceType.CPU
    device_time_total = self_device_time_total = 0
    device_memory_usage = self_device_memory_usage = 0
    is_async = is_remote = is_legacy = False
    overload_name = None

    @property
    def device_time(self):
        return self.device_time_total / self.count if self.count else 0.0

    cuda_time = property(lambda self: self.device_time)
    cuda_time_total = property(lambda self: self.device_time_total)
    self_cuda_time_total = property(lambda self: self.self_device_time_total)
    device_time_str = property(lambda self: _format_time(self.device_time))
    device_time_total_str = property(lambda self: _format_time(self.device_time_total))
    self_device_time_total_str = property(lambda self: _format_time(self.self_device_time_total))

    @property
    def cpu_time(self):
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_str(self):
        return _format_time(self.cpu_time)

    @property
    def cpu_time_total_str(self):
        return _format_time(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self):
        return _format_time(self.self_cpu_time_total)
