"""What the allocator of GPU memory holds, as numbers and as text."""

import contextlib
import json
import weakref

from mica import _C
from mica.cuda.streams import _cuda_device


def _stats(device=None):
    return _C._memory_stats(_cuda_device(device))


def _ask(what, device=None, argument=""):
    """The backend's answer to a question, from JSON."""
    answer = _C._backend_query(_cuda_device(device), what, argument)
    return json.loads(answer) if answer else None


def _flat(nested):
    """A nested dict as one of dotted names, sorted."""
    result = {}

    def walk(prefix, value):
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(f"{prefix}.{name}" if prefix else name, inner)
        else:
            result[prefix] = value

    walk("", nested)
    return dict(sorted(result.items()))


def memory_stats_as_nested_dict(device=None):
    """The allocator's counts, by subject: blocks and bytes of small requests, of large ones, and of all."""
    if _C._device_count("cuda") == 0:
        return {}
    found = _ask("memory_statistics", device)
    none = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
    return found | {"oversize_allocations": dict(none), "oversize_segments": dict(none)}


def memory_stats(device=None):
    """The allocator's counts under torch's names, such as "allocated_bytes.all.current"."""
    return _flat(memory_stats_as_nested_dict(device))


def reset_accumulated_memory_stats(device=None):
    """Let the counts of all that was ever allocated and freed start again from zero."""
    _ask("reset_accumulated_memory_statistics", device)


def host_memory_stats_as_nested_dict():
    """The counts of the cache of pinned memory, by subject; times are in microseconds."""
    return _ask("pinned_statistics") if _C._device_count("cuda") else {}


def host_memory_stats():
    """The counts of the cache of pinned memory under torch's names."""
    return _flat(host_memory_stats_as_nested_dict())


def reset_peak_host_memory_stats():
    """Let the peaks of pinned memory start again from what is held now."""
    _ask("reset_peak_pinned_statistics")


def reset_accumulated_host_memory_stats():
    """Let the counts of pinned memory start again from zero."""
    _ask("reset_accumulated_pinned_statistics")


def _size(number):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 10240 or unit == "GiB":
            return f"{int(number)} {unit}"
        number /= 1024


_SUMMARY = (
    ("Allocated memory", "allocated_bytes", _size),
    ("Active memory", "active_bytes", _size),
    ("Requested memory", "requested_bytes", _size),
    ("GPU reserved memory", "reserved_bytes", _size),
    ("Non-releasable memory", "inactive_split_bytes", _size),
    ("Allocations", "allocation", str),
    ("Active allocs", "active", str),
    ("GPU reserved segments", "segment", str),
    ("Non-releasable allocs", "inactive_split", str),
)


def memory_summary(device=None, abbreviated=False):
    """A table of what tensors hold and what is kept for them."""
    device = _cuda_device(device)
    stats = memory_stats(device)
    width = 75
    ooms, retries = f"  CUDA OOMs: {stats['num_ooms']}", f"  cudaMalloc retries: {stats['num_alloc_retries']}"
    cells = "| {:<21} | {:>10} | {:>10} | {:>10} | {:>10} |".format
    text = [
        f"|{'=' * width}|",
        f"|{f'PyTorch CUDA memory summary, device ID {device.index}':^{width}}|",
        f"|{'-' * width}|",
        f"|{ooms:<37}|{retries:<37}|",
        f"|{'=' * width}|",
        cells("Metric", "Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed"),
    ]
    for title, subject, form in _SUMMARY:
        text.append(f"|{'-' * width}|")
        for pool, name in (
            ("all", title),
            ("large_pool", "      from large pool"),
            ("small_pool", "      from small pool"),
        ):
            if abbreviated and pool != "all":
                continue
            values = (stats[f"{subject}.{pool}.{what}"] for what in ("current", "peak", "allocated", "freed"))
            text.append(cells(name, *map(form, values)))
    return "\n".join([*text, f"|{'=' * width}|"]) + "\n"


def memory_snapshot(mempool_id=None):
    """The segments that the allocator holds on all GPUs, each with its blocks, in torch's form."""
    found = []
    for index in range(_C._device_count("cuda")):
        for segment in _ask("memory_snapshot", index):
            segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
            if mempool_id is None or segment["segment_pool_id"] == tuple(mempool_id):
                found.append(segment)
    return found


def _snapshot(device=None, augment_with_fx_traces=False):
    return {"segments": memory_snapshot(), "device_traces": [[] for _ in range(_C._device_count("cuda"))]}


def _dump_snapshot(filename="dump_snapshot.pickle", augment_with_fx_traces=False):
    """Write the segments for torch's viewer of memory."""
    import pickle

    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


def _set_allocator_settings(env):
    """Change what PYTORCH_CUDA_ALLOC_CONF has said."""
    _C._backend_query(_cuda_device(), "allocator_settings", env)


def get_allocator_backend():
    """Which allocator is in use: the one of this backend, under torch's name for its own."""
    return "native"


def set_per_process_memory_fraction(fraction, device=None):
    """Let the allocator reserve at most this part of the GPU's memory."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if fraction < 0 or fraction > 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    device = _cuda_device(device)
    _fractions[device.index] = fraction
    _C._set_memory_limit(device, max(1, int(fraction * _stats(device)["total_memory"])) if fraction < 1 else 0)


_fractions = {}


def get_per_process_memory_fraction(device=None):
    """The part that was set."""
    return _fractions.get(_cuda_device(device).index, 1.0)


_allocations = {}


def caching_allocator_alloc(size, device=None, stream=None):
    """Memory of the GPU as an address, from the allocator of tensors."""
    import mica

    memory = mica.empty(size, dtype=mica.uint8, device=_cuda_device(device))
    _allocations[memory.data_ptr()] = memory
    return memory.data_ptr()


def caching_allocator_delete(mem_ptr):
    """Give memory of `caching_allocator_alloc` back."""
    _allocations.pop(mem_ptr)


def caching_allocator_enable(value=True):
    """Whether memory that tensors give back is kept for others; without, each asks the GPU, which tools can watch."""
    _set_allocator_settings(f"caching:{bool(value)}")


@contextlib.contextmanager
def caching_allocator_disabled():
    """In a with block, memory that tensors give back goes back to the GPU at once."""
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(True)


class CUDAPluggableAllocator:
    """Memory from two functions of a library: `void* f(ssize_t size, int device, cudaStream_t stream)` and
    `void g(void* data, ssize_t size, int device, cudaStream_t stream)`."""

    def __init__(self, path_to_so_file, alloc_fn_name, free_fn_name):
        self._names = "\n".join((str(path_to_so_file), alloc_fn_name, free_fn_name))


def change_current_allocator(allocator):
    """Let all memory come from another allocator; before anything was allocated."""
    _C._backend_query(_cuda_device(), "use_allocator", allocator._names)


_pools = weakref.WeakValueDictionary()  # by their names, those of graphs too


def pool_of(name):
    """The pool with the name that a graph is given. It is a new one where there is none of that name."""
    made = _pools.get(tuple(name))
    if made is None:
        _pools[tuple(name)] = made = MemPool()
    return made


class MemPool:
    """Memory of its own for what is allocated in a `use_mem_pool` block. It goes back to the GPU, by empty_cache, after
    the pool is gone."""

    def __init__(self, allocator=None, use_on_oom=False, no_split=False):
        if allocator is not None:
            raise NotImplementedError("MemPool: memory comes from Mica's own allocator")
        if use_on_oom or no_split:
            asked = "use_on_oom" if use_on_oom else "no_split"
            raise NotImplementedError(
                f"MemPool({asked}=True) is not in Mica: a pool keeps its memory for its own blocks, and splits its segments"
            )
        self._device = _cuda_device()
        self._handle = _C._backend_query(self._device, "pool_new", "")
        _pools[self.id] = self

    @property
    def id(self):
        """The pool's name in snapshots."""
        return (0, int(self._handle))

    def snapshot(self):
        """The segments of the pool."""
        return memory_snapshot(self.id)

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            _C._backend_query(self._device, "pool_free", self._handle)


@contextlib.contextmanager
def use_mem_pool(pool, device=None):
    """Let what this thread allocates in a with block come from a pool."""
    device = pool._device if device is None else _cuda_device(device)
    _C._backend_query(device, "pool_begin", pool._handle)
    try:
        yield
    finally:
        _C._backend_query(device, "pool_end", pool._handle)


def __getattr__(name):
    import mica.cuda as everything

    if name in (
        "empty_cache", "is_initialized", "list_gpu_processes", "max_memory_allocated", "max_memory_cached",
        "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved",
        "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats",
    ):  # fmt: skip
        return getattr(everything, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
