"""NVIDIA GPUs: devices, memory and waiting for them. Nothing here starts CUDA before it is asked to."""

import contextlib
import secrets

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


def _memory(device, what):
    return _C._memory_stats(_device(device))[what] if is_available() else 0


def memory_allocated(device=None):
    """Bytes that tensors hold."""
    return _memory(device, "allocated")


def max_memory_allocated(device=None):
    """The most bytes that tensors have held since the last reset."""
    return _memory(device, "peak_allocated")


def memory_reserved(device=None):
    """Bytes taken from the GPU, those that wait for reuse included."""
    return _memory(device, "reserved")


def max_memory_reserved(device=None):
    """The most bytes taken from the GPU since the last reset."""
    return _memory(device, "peak_reserved")


def reset_peak_memory_stats(device=None):
    """Let the peaks start again from what is held now."""
    _C._reset_peak_memory_stats(_device(device))


reset_max_memory_allocated = reset_peak_memory_stats
reset_max_memory_cached = reset_peak_memory_stats
memory_cached = memory_reserved
max_memory_cached = max_memory_reserved


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


def init():
    """Start CUDA now rather than with the first tensor on it."""
    _C._current_device("cuda")


def is_initialized():
    """Whether CUDA has been started: where there is a GPU, asking for it has."""
    return is_available()


def ipc_collect():
    """Nothing to collect: tensors on GPUs are not shared between processes."""


def manual_seed(seed):
    """Seed the random streams of the GPUs; nothing where there is none."""
    if is_available():
        _C._seed_devices(int(seed))


manual_seed_all = manual_seed


def seed():
    """Seed the random streams of the GPUs with a number that nobody knows."""
    manual_seed(secrets.randbits(63))


seed_all = seed


def get_rng_state_all():
    """The states of the GPUs' random streams: empty where there is no GPU."""
    if is_available():
        raise NotImplementedError("The state of a GPU's random stream cannot be taken yet: seed it with manual_seed")
    return []


def set_rng_state_all(new_states):
    """Take up the states that `get_rng_state_all` has returned."""
    if list(new_states):
        raise NotImplementedError("The state of a GPU's random stream cannot be set yet: seed it with manual_seed")


class device:
    """Use another GPU in a with block; an index below 0 changes nothing."""

    def __init__(self, device):
        self.idx = device if isinstance(device, int) else _C.device(device).index
        self.prev_idx = -1

    def __enter__(self):
        if self.idx is not None and self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *exception):
        if self.prev_idx >= 0:
            set_device(self.prev_idx)
        return False


class device_of(device):
    """Use the GPU of a tensor in a with block; a tensor elsewhere changes nothing."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.is_cuda else -1)


@contextlib.contextmanager
def stream(stream):
    """None changes nothing; there are no streams to choose from yet."""
    if stream is not None:
        raise NotImplementedError("Mica has no streams to choose from yet: each GPU has the one that it uses")
    yield


def __getattr__(name):
    if name == "amp":
        import mica.cuda.amp as amp

        return amp
    if name == "OutOfMemoryError":
        return _C.OutOfMemoryError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
