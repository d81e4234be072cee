"""NVIDIA GPUs: devices, memory and waiting for them. Nothing here starts CUDA before it is asked to."""

import os
import sys

from mica import _C
from mica.cuda.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from mica.cuda.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

__all__ = [
    "Event", "ExternalStream", "Stream", "StreamContext", "current_device", "current_stream", "default_stream", "device",
    "device_count", "device_of", "empty_cache", "get_device_capability", "get_device_name", "get_device_properties",
    "get_rng_state", "get_rng_state_all", "init", "initial_seed", "ipc_collect", "is_available", "is_bf16_supported",
    "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_reserved", "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_rng_state",
    "set_rng_state_all", "set_stream", "stream", "synchronize",
]  # fmt: skip


def _find_libraries():
    """Tell the backend where the nvidia-* packages keep their libraries, unless somebody has."""
    if "MICA_CUDA_LIBRARIES" in os.environ:
        return
    found = []
    for folder in sys.path:
        for package in ("cudnn", "cu13"):
            path = os.path.join(folder, "nvidia", package, "lib")
            if os.path.isdir(path):
                found.append(path)
    if found:
        os.environ["MICA_CUDA_LIBRARIES"] = os.pathsep.join(found)


_find_libraries()


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


class _DeviceProperties:
    """Facts about a GPU, as attributes."""

    def __init__(self, facts):
        uuid = facts.pop("uuid_bytes").hex()
        self.__dict__.update(facts)
        self.uuid = "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))

    def __repr__(self):
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, L2_cache_size={self.L2_cache_size // 2**20}MB)"
        )


def get_device_properties(device=None):
    """Facts about a GPU: its name, memory, multiprocessors."""
    if not is_available():  # torch asserts here, and programs catch that
        raise AssertionError("Torch not compiled with CUDA enabled: Mica finds no GPU, or no CUDA backend")
    return _DeviceProperties(_C._device_properties(_device(device)))


def get_device_capability(device=None):
    """The compute capability of a GPU, as its major and minor number."""
    facts = get_device_properties(device)
    return facts.major, facts.minor


def get_arch_list():
    """The architectures that the CUDA backend is built for."""
    return ["sm_80", "sm_90"] if is_available() else []


def can_device_access_peer(device, peer_device):
    """Whether a GPU reads the memory of another directly."""
    return _C._can_access_peer(_device(device), _device(peer_device))


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
    """Whether CUDA has been started. Where there is a GPU, this question starts it."""
    return is_available()


def _lazy_call(callable, **kwargs):
    """Call a function once CUDA has been started: now where there is a GPU, never where there is none."""
    if is_initialized():
        callable()


def ipc_collect():
    """Let go of memory that was sent to other processes and that none of them uses any longer."""
    import sys

    sharing = sys.modules.get("mica.multiprocessing._device_sharing")
    if sharing is not None:
        sharing.collect()


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


def is_tf32_supported():
    """Whether float32 products may be rounded to TF32: all GPUs that the CUDA backend runs on can."""
    return is_available()


def get_gencode_flags():
    """The flags with which nvcc compiles for the architectures of this backend."""
    return " ".join(f"-gencode compute=compute_{a[3:]},code={a}" for a in get_arch_list())


def get_stream_from_external(data_ptr, device=None):
    """A stream that somebody else has made, by its address."""
    return ExternalStream(data_ptr, device)


has_half, has_magma = True, False

# Names that few programs use, and the modules that have them.
_LAZY = {
    **dict.fromkeys(("CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"), "graphs"),
    **dict.fromkeys(
        (
            "CUDAPluggableAllocator", "MemPool", "caching_allocator_alloc", "caching_allocator_delete", "caching_allocator_disabled", "caching_allocator_enable", "change_current_allocator",
            "get_allocator_backend", "get_per_process_memory_fraction", "host_memory_stats",
            "host_memory_stats_as_nested_dict", "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict",
            "memory_summary", "reset_accumulated_host_memory_stats", "reset_accumulated_memory_stats",
            "reset_peak_host_memory_stats", "set_per_process_memory_fraction", "use_mem_pool",
        ),
        "memory",
    ),
    **dict.fromkeys(
        (
            "clock_rate", "device_memory_used", "list_gpu_processes", "memory_usage", "power_draw", "temperature",
            "utilization",
        ),
        "_nvml",
    ),
    **dict.fromkeys(("CudaError", "DeferredCudaCallError", "check_error", "cudaStatus", "cudart"), "_runtime"),
    **dict.fromkeys(("get_sync_debug_mode", "set_sync_debug_mode"), "_waiting"),
    "GreenContext": "green_contexts",
}  # fmt: skip


def __getattr__(name):
    import importlib

    if name in (
        "amp",
        "comm",
        "gds",
        "graphs",
        "green_contexts",
        "memory",
        "nccl",
        "nvtx",
        "profiler",
        "sparse",
        "tunable",
    ):
        return importlib.import_module(f"mica.cuda.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(f"mica.cuda.{_LAZY[name]}"), name)
    if name == "_initialized":
        return is_initialized()
    if name == "OutOfMemoryError":
        return _C.OutOfMemoryError
    if name.endswith("Tensor"):
        from mica._as_torch.legacy_types import CUDA_TYPES

        if name in CUDA_TYPES:
            return CUDA_TYPES[name]
    if name.endswith("Storage"):
        from mica.storage import cuda_storage_class

        if made := cuda_storage_class(name):
            return made
    if name == "default_generators":
        return tuple(_C._default_generator(_C.device("cuda", i)) for i in range(device_count()))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
