"""What the allocator of GPU memory holds, as numbers and as text."""

from mica import _C
from mica.cuda.streams import _cuda_device


def _stats(device=None):
    return _C._memory_stats(_cuda_device(device))


def memory_stats_as_nested_dict(device=None):
    """The allocator's counts, by subject."""
    if _C._device_count("cuda") == 0:
        return {}
    s = _stats(device)

    def pools(current, peak):
        return {"all": {"current": current, "peak": peak, "allocated": current, "freed": 0}}

    return {
        "allocated_bytes": pools(s["allocated"], s["peak_allocated"]),
        "reserved_bytes": pools(s["reserved"], s["peak_reserved"]),
        "active_bytes": pools(s["allocated"], s["peak_allocated"]),
        "inactive_split_bytes": pools(s["reserved"] - s["allocated"], s["peak_reserved"] - s["allocated"]),
        "allocation": pools(s["allocations"], s["allocations"]),
        "segment": pools(s["device_allocations"], s["device_allocations"]),
        "num_alloc_retries": 0,
        "num_ooms": 0,
        "num_device_alloc": s["device_allocations"],
    }


def memory_stats(device=None):
    """The allocator's counts under torch's names, such as "allocated_bytes.all.current"."""
    result = {}

    def walk(prefix, value):
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(f"{prefix}.{name}" if prefix else name, inner)
        else:
            result[prefix] = value

    walk("", memory_stats_as_nested_dict(device))
    return dict(sorted(result.items()))


def _size(number):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 10240 or unit == "GiB":
            return f"{int(number):>7d} {unit}"
        number /= 1024


def memory_summary(device=None, abbreviated=False):
    """A table of what tensors hold and what is kept for them."""
    device = _cuda_device(device)
    s = _stats(device)
    rows = [
        ("Allocated memory", s["allocated"], s["peak_allocated"]),
        ("Active memory", s["allocated"], s["peak_allocated"]),
        ("GPU reserved memory", s["reserved"], s["peak_reserved"]),
        ("Non-releasable memory", s["reserved"] - s["allocated"], s["peak_reserved"] - s["allocated"]),
    ]
    line = "=" * 75
    text = [
        f"|{line}|",
        f"|{f'PyTorch CUDA memory summary, device ID {device.index}':^75}|",
        f"|{'-' * 75}|",
        f"| {'Metric':<35}| {'Cur Usage':>17} | {'Peak Usage':>17} |",
        f"|{line}|",
        *(f"| {name:<35}| {_size(now):>17} | {_size(peak):>17} |" for name, now, peak in rows),
        f"|{'-' * 75}|",
        f"| {'Allocations':<35}| {s['allocations']:>17} | {'':>17} |",
        f"| {'GPU segments':<35}| {s['device_allocations']:>17} | {'':>17} |",
        f"|{line}|",
    ]
    return "\n".join(text) + "\n"


def memory_snapshot(mempool_id=None):
    """The reserved memory, as a list of one entry for each GPU in torch's form."""
    found = []
    for index in range(_C._device_count("cuda")):
        s = _stats(index)
        found.append({
            "device": index, "address": 0, "total_size": s["reserved"], "allocated_size": s["allocated"],
            "active_size": s["allocated"], "requested_size": s["allocated"], "stream": 0, "segment_type": "large",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
            "blocks": [
                {"size": s["allocated"], "requested_size": s["allocated"], "state": "active_allocated", "frames": []},
                {"size": s["reserved"] - s["allocated"], "requested_size": 0, "state": "inactive", "frames": []},
            ],
        })  # fmt: skip
    return found


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
