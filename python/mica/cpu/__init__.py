"""The CPU as a device among others. Its work is done in order, so that streams and events have nothing to wait for."""

from mica._functions import streams as _streams
from mica.cpu import amp

__all__ = ["Event", "Stream", "StreamContext", "amp", "current_device", "current_stream", "device_count",
           "empty_cache", "get_capabilities", "is_available", "is_initialized", "set_device", "stream", "synchronize"]  # fmt: skip


def is_available():
    """Return True: there is always a CPU."""
    return True


def is_initialized():
    """Return True: a CPU needs no start."""
    return True


def device_count():
    """Return 1: the CPU is one device, however many cores it has."""
    return 1


def current_device():
    """Return "cpu", the name of the device."""
    return "cpu"


def set_device(device):
    """Do nothing: there is one CPU."""


def synchronize(device=None):
    """Do nothing: work on the CPU is done when its call returns."""


def empty_cache():
    """Return to the system the memory that freed tensors have left for the next ones. Without this call,
    memory goes back when nobody has wanted it for a second."""
    from mica import _C

    _C._empty_cpu_cache()


def get_capabilities():
    """What the processor can do, by the names of its instruction sets."""
    from mica import backends

    return {"architecture": _machine(), "capability": backends.cpu.get_cpu_capability()}


def _machine():
    import platform

    return platform.machine()


class Stream(_streams.Stream):
    """The CPU's stream, of which there is one."""

    def __new__(cls, priority=-1):
        return object.__new__(cls)

    def __init__(self, priority=-1):
        super().__init__("cpu", priority)

    def wait_stream(self, stream):
        """Nothing to wait for: what comes later runs later."""


class Event(_streams.Event):
    """A point in the work of the CPU."""

    def __new__(cls, enable_timing=False):
        return object.__new__(cls)

    def __init__(self, enable_timing=False):
        super().__init__("cpu", enable_timing=enable_timing)


class StreamContext:
    """A with block in which the stream is the given one: the CPU has one."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        return None

    def __exit__(self, *exception):
        return None


_the_stream = Stream()


def current_stream(device=None):
    """The CPU's stream."""
    return _the_stream


def stream(stream):
    """A with block in which the stream is the given one."""
    return StreamContext(stream)
