"""Lists of tensors grouped for operations on whole lists: what optimizers outside torch use."""

from mica import _C

Indices = list[int]
TensorListList = list[list[_C.Tensor | None]]


def _get_foreach_kernels_supported_devices():
    """Types of device on which an operation on a list is one call."""
    return ["cpu", "cuda"]


_get_fused_kernels_supported_devices = _get_foreach_kernels_supported_devices


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
    """(device, dtype) of the first list's tensors -> the lists with those tensors alone, and their places if asked for."""
    groups = {}
    if not tensorlistlist:
        return groups
    for i, first in enumerate(tensorlistlist[0]):
        groups.setdefault((first.device, first.dtype), []).append(i)
    return {
        key: (
            [[values[i] for i in places] if values else [] for values in tensorlistlist],
            places if with_indices else [],
        )
        for key, places in groups.items()
    }


def _device_has_foreach_support(device):
    return device.type in _get_foreach_kernels_supported_devices()


def _has_foreach_support(tensors, device):
    return _device_has_foreach_support(device) and all(t is None or type(t) is _C.Tensor for t in tensors)
