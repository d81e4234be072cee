"""Backends: libraries that bring a device type of their own."""

from mica._C import _open_backend


def open(path):
    """Open a backend's shared library; returns the name of the device type that it brings."""
    return _open_backend(path)
