"""Tensors to and from other libraries without a copy."""

from mica import _C

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor):
    """A DLPack capsule of the tensor's memory, to be consumed once."""
    return tensor.__dlpack__()


def from_dlpack(ext_tensor, *, device=None, copy=None):
    """A tensor over the memory of a capsule, or of an object that can give one."""
    return _C.from_dlpack(ext_tensor, device=device, copy=copy)
