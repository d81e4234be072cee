"""Tensor._lazy_clone: a copy whose memory is the original's until one of the two is written."""

from mica import _C
from mica.autograd import Function


def _share(tensor):
    """A tensor of the same geometry over a storage that shares the bytes of the tensor's."""
    storage = tensor.untyped_storage()._lazy_clone()
    made = _C.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made._set_storage(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


class LazyClone(Function):
    @staticmethod
    def forward(ctx, x):
        return _share(x.detach())

    @staticmethod
    def backward(ctx, grad):
        return grad


def lazy_clone(tensor):
    plain = type(tensor) in (_C.Tensor, _parameter())
    if not plain or tensor.layout != _C.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return tensor.clone()
    return LazyClone.apply(tensor) if tensor.requires_grad and _C.is_grad_enabled() else _share(tensor)


def _parameter():
    from mica.nn import Parameter

    return Parameter
