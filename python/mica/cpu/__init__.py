"""The CPU as a device among others."""

from mica.cpu import amp

__all__ = ["amp", "current_device", "device_count", "is_available", "synchronize"]


def is_available():
    """True: there always is one."""
    return True


def device_count():
    """One, whatever the number of cores."""
    return 1


def current_device():
    """Its name."""
    return "cpu"


def synchronize(device=None):
    """Nothing to wait for: work on the CPU is done when the call returns."""
