"""The CPU as a device among others."""

from mica.cpu import amp

__all__ = ["amp", "current_device", "device_count", "is_available", "synchronize"]


def is_available():
    """Return True: there is always a CPU."""
    return True


def device_count():
    """Return 1: the CPU is one device, however many cores it has."""
    return 1


def current_device():
    """Return "cpu", the name of the device."""
    return "cpu"


def synchronize(device=None):
    """Do nothing: work on the CPU is done when its call returns."""
