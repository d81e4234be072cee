"""The accelerator's memory."""

from collections import OrderedDict

from mica import _C
from mica.accelerator import _device, _present

__all__ = [
    "empty_cache",
    "empty_host_cache",
    "get_memory_info",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def empty_cache():
    """Give memory that no tensor holds back to the devices."""
    _C._empty_cache(_present())


def empty_host_cache():
    """Give pinned memory of the host that no tensor holds back to the system, where the backend keeps any."""
    device = _present()
    if device.type == "cuda":
        _C._backend_query(device, "empty_pinned_cache", "")


def _memory(device, what):
    return _C._memory_stats(_device(device))[what]


def memory_stats(device_index=None, /):
    """All that is counted of the device's memory, by name."""
    device = _device(device_index)
    if device.type == "cuda":
        from mica.cuda.memory import memory_stats

        return memory_stats(device)
    stats = _C._memory_stats(device)
    return OrderedDict(
        [
            ("allocated_bytes.all.current", stats["allocated"]),
            ("allocated_bytes.all.peak", stats["peak_allocated"]),
            ("allocation.all.allocated", stats["allocations"]),
            ("num_device_alloc", stats["device_allocations"]),
            ("reserved_bytes.all.current", stats["reserved"]),
            ("reserved_bytes.all.peak", stats["peak_reserved"]),
        ]
    )


def memory_allocated(device_index=None, /):
    """The bytes that tensors hold on the device."""
    return _memory(device_index, "allocated")


def max_memory_allocated(device_index=None, /):
    """The most bytes that tensors have held on the device since the last reset."""
    return _memory(device_index, "peak_allocated")


def memory_reserved(device_index=None, /):
    """The bytes taken from the device, those that wait for reuse included."""
    return _memory(device_index, "reserved")


def max_memory_reserved(device_index=None, /):
    """The most bytes taken from the device since the last reset."""
    return _memory(device_index, "peak_reserved")


def reset_accumulated_memory_stats(device_index=None, /):
    """Reset the counters of all allocations and frees to zero."""
    device = _device(device_index)
    if device.type != "cuda":
        raise RuntimeError(f"the backend of {device.type} counts nothing over time")
    from mica.cuda.memory import reset_accumulated_memory_stats

    reset_accumulated_memory_stats(device)


def reset_peak_memory_stats(device_index=None, /):
    """Set the peaks to the memory that is held now."""
    _C._reset_peak_memory_stats(_device(device_index))


def get_memory_info(device_index=None, /):
    """The device's free bytes and its bytes in all."""
    stats = _C._memory_stats(_device(device_index))
    return stats["free_memory"], stats["total_memory"]
