"""torch.FloatTensor and its like: constructors of old, and classes for isinstance."""

from mica import _C, storage

_WITHOUT_TENSORS = ("Complex", "QInt", "QUInt")
_NAMES = {name: dtype for name, dtype in storage._NAMES.items() if not name.startswith(_WITHOUT_TENSORS)}


class tensortype(type):
    """The type of the tensor types: they have instances, but no object is made of them."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, _C.Tensor) and instance.dtype == cls.dtype and instance.is_cuda == cls.is_cuda

    def __subclasscheck__(cls, subclass):
        return subclass is cls

    def __call__(cls, *args, device=None):
        return _C._legacy_new(cls.dtype, _C.device(device or ("cuda" if cls.is_cuda else "cpu")), args)


def _tensor_type(name, dtype, is_cuda=False):
    attributes = {"dtype": dtype, "is_cuda": is_cuda, "is_sparse": False, "layout": _C.strided}
    return tensortype(name, (), {**attributes, "__module__": "torch.cuda" if is_cuda else "torch"})


TYPES = {f"{name}Tensor": _tensor_type(f"{name}Tensor", dtype) for name, dtype in _NAMES.items()}
CUDA_TYPES = {f"{name}Tensor": _tensor_type(f"{name}Tensor", dtype, True) for name, dtype in _NAMES.items()}


def by_name(name):
    """The class that "torch.FloatTensor" or "torch.cuda.FloatTensor" names."""
    table = CUDA_TYPES if ".cuda." in name else TYPES
    try:
        return table[name.rsplit(".", 1)[-1]]
    except KeyError:
        raise ValueError(f"invalid type: '{name}'") from None
