"""The device that computes beside the CPU: a GPU where there is one, otherwise that of the first backend that was opened."""

from mica import _C

_MEMORY = [
    "empty_cache", "empty_host_cache", "get_memory_info", "max_memory_allocated", "max_memory_reserved",
    "memory_allocated", "memory_reserved", "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats",
]  # fmt: skip

__all__ = [
    "Graph", "current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count",
    "device_index", "get_device_capability", "is_available", "set_device_idx", "set_device_index", "set_stream",
    "synchronize", *_MEMORY,
]  # fmt: skip


def is_available():
    """Whether this machine has an accelerator and a backend for it."""
    return _C._accelerator() is not None


def device_count():
    """How many devices the accelerator's backend has; 0 where there is no accelerator."""
    device = _C._accelerator()
    return 0 if device is None else _C._device_count(device)


def current_accelerator(check_available=False):
    """The accelerator as a device without an index; None where there is none."""
    return _C._accelerator()


def _present():
    device = _C._accelerator()
    if device is None:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return device


def _device(device=None):
    """A device of the accelerator, with an index, from all that torch takes for one."""
    present = _present()
    if device is None:
        return _C.device(present.type, _C._current_device(present))
    if isinstance(device, int):
        return _C.device(present.type, device)
    device = _C.device(device)
    if device.type != present.type:
        raise ValueError(f"{device.type} doesn't match the current accelerator {present}.")
    return _C.device(present.type, _C._current_device(present) if device.index is None else device.index)


def current_device_index():
    """The index of the device that this thread uses."""
    return _C._current_device(_present())


def set_device_index(device, /):
    """Let this thread use the device of this index."""
    _C._set_device(_device(device))


current_device_idx = current_device_index
set_device_idx = set_device_index


class device_index:
    """Use the device of another index in a with block; None changes nothing."""

    def __init__(self, device, /):
        self.idx = device
        self.prev_idx = -1

    def __enter__(self):
        if self.idx is not None:
            self.prev_idx = current_device_index()
            set_device_index(self.idx)

    def __exit__(self, *exception):
        if self.idx is not None:
            set_device_index(self.prev_idx)


def current_stream(device=None, /):
    """The stream on which this thread queues the work of a device."""
    device = _device(device)
    if device.type == "cuda":
        from mica import cuda

        return cuda.current_stream(device)
    from mica import Stream

    return Stream(device)


def set_stream(stream, /):
    """Queue on this stream from now on, and use its device."""
    device = _device(stream.device)
    _C._set_device(device)
    if device.type == "cuda":
        from mica import cuda

        cuda.set_stream(stream)


def synchronize(device=None, /):
    """Wait until the device has done all that was queued on it."""
    _C._synchronize(_device(device))


def get_device_capability(device=None, /):
    """What the device can do: {"supported_dtypes": the dtypes that its tensors can have}."""
    import mica

    device = _device(device)
    dtypes = {each for each in vars(mica).values() if isinstance(each, _C.dtype)}
    return {"supported_dtypes": {each for each in dtypes if _can_hold(each, device)}}


def _can_hold(dtype, device):
    try:
        _C.empty((1,), dtype=dtype, device=device)
    except (RuntimeError, TypeError):
        return False
    return True


def __getattr__(name):
    import importlib

    if name in ("graphs", "memory"):
        return importlib.import_module(f"mica.accelerator.{name}")
    home = "memory" if name in _MEMORY else "graphs" if name == "Graph" else None
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"mica.accelerator.{home}"), name)
    return value
