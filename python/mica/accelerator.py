"""The device that computes beside the CPU, whichever it is: CUDA's, where there is one."""

from mica import _C, cuda

__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "device_count", "device_index", "empty_cache",
    "get_memory_info", "is_available", "max_memory_allocated", "max_memory_reserved",
    "memory_allocated", "memory_reserved", "reset_peak_memory_stats", "set_device_idx", "set_device_index",
    "synchronize",
]  # fmt: skip


def is_available():
    """Whether there is one."""
    return cuda.is_available()


def device_count():
    """How many there are; 0 where there is none."""
    return cuda.device_count()


def current_accelerator(check_available=False):
    """Its device, without an index; None where there is none."""
    return _C.device("cuda") if is_available() else None


def _present():
    if not is_available():
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return cuda


def _index(device):
    if device is None:
        return current_device_index()
    if isinstance(device, int):
        return device
    device = _C.device(device)
    if device.type != current_accelerator().type:
        raise ValueError(f"{device.type} doesn't match the current accelerator {current_accelerator()}.")
    return current_device_index() if device.index is None else device.index


def current_device_index():
    """The index of the one that is used in this thread."""
    return _present().current_device()


def set_device_index(device, /):
    """Use this one in this thread."""
    _present().set_device(_index(device))


current_device_idx = current_device_index
set_device_idx = set_device_index


class device_index:
    """Use another one in a with block; None changes nothing."""

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


def synchronize(device=None, /):
    """Wait until it has done all that was queued on it."""
    _present().synchronize(_index(device))


def empty_cache():
    """Return memory that no tensor holds to it."""
    _present().empty_cache()


def memory_allocated(device=None, /):
    """Bytes that tensors hold on it."""
    return _present().memory_allocated(_index(device))


def max_memory_allocated(device=None, /):
    """The most bytes that tensors have held on it since the last reset."""
    return _present().max_memory_allocated(_index(device))


def memory_reserved(device=None, /):
    """Bytes taken from it, those that wait for reuse included."""
    return _present().memory_reserved(_index(device))


def max_memory_reserved(device=None, /):
    """The most bytes taken from it since the last reset."""
    return _present().max_memory_reserved(_index(device))


def reset_peak_memory_stats(device=None, /):
    """Let the peaks start again from what is held now."""
    _present().reset_peak_memory_stats(_index(device))


def get_memory_info(device=None, /):
    """Its free and total bytes."""
    return _present().mem_get_info(_index(device))
