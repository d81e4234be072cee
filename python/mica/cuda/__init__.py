"""NVIDIA GPUs: devices, memory and waiting for them. Nothing here starts CUDA before it is asked to."""

from mica import _C


def _device(device=None):
    if device is None:
        return "cuda"
    return f"cuda:{device}" if isinstance(device, int) else device


def is_available():
    """Whether there is a CUDA backend and a device for it."""
    return device_count() > 0


def device_count():
    """How many GPUs there are."""
    return _C._device_count("cuda")


def current_device():
    """The index of the GPU that "cuda" names in this thread."""
    return _C._current_device("cuda")


def set_device(device):
    """Make "cuda" name this GPU in this thread."""
    _C._set_device(_device(device))


def get_device_name(device=None):
    """The GPU's name."""
    return _C._device_name(_device(device))


def synchronize(device=None):
    """Wait until the GPU has done all that was queued on it."""
    _C._synchronize(_device(device))


def memory_allocated(device=None):
    """Bytes that tensors hold."""
    return _C._memory_stats(_device(device))["allocated"]


def max_memory_allocated(device=None):
    """The most bytes that tensors have held since the last reset."""
    return _C._memory_stats(_device(device))["peak_allocated"]


def memory_reserved(device=None):
    """Bytes taken from the GPU, those that wait for reuse included."""
    return _C._memory_stats(_device(device))["reserved"]


def max_memory_reserved(device=None):
    """The most bytes taken from the GPU since the last reset."""
    return _C._memory_stats(_device(device))["peak_reserved"]


def reset_peak_memory_stats(device=None):
    """Let the peaks start again from what is held now."""
    _C._reset_peak_memory_stats(_device(device))


def mem_get_info(device=None):
    """Free and total bytes of the GPU's memory."""
    stats = _C._memory_stats(_device(device))
    return stats["free_memory"], stats["total_memory"]


def empty_cache():
    """Return memory that no tensor holds to the GPU."""
    if is_available():
        _C._empty_cache("cuda")


def is_bf16_supported():
    """Whether the GPU computes in bfloat16: all that the CUDA backend runs on do."""
    return is_available()


def __getattr__(name):
    if name == "amp":
        import mica.cuda.amp as amp

        return amp
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
