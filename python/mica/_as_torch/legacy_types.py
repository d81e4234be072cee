"""torch.FloatTensor and its like: constructors of old, and classes for isinstance."""

from mica import _C, storage

_WITHOUT_TENSORS = ("Complex", "QInt", "QUInt")
_NAMES = {name: dtype for name, dtype in storage._NAMES.items() if not name.startswith(_WITHOUT_TENSORS)}


def _has_cuda():
    from mica.backends import cuda

    return cuda.is_built()


class tensortype(type):
    """The type of torch.FloatTensor and its like. Tensors are instances of them, but no object has one as its class."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, _C.Tensor) and instance.dtype == cls.dtype and instance.is_cuda == cls.is_cuda

    def __subclasscheck__(cls, subclass):
        return subclass is cls

    def __new__(meta, name, bases, members):
        for base in bases:
            if isinstance(base, tensortype):
                raise TypeError(f"type '{base.__module__}.{base.__name__}' is not an acceptable base type")
        return super().__new__(meta, name, bases, members)

    def check_there(cls):
        if cls.is_cuda and not _has_cuda():
            raise TypeError(f"type torch.cuda.{cls.__name__} not available. Torch not compiled with CUDA enabled.")

    def __call__(cls, *args, device=None):
        cls.check_there()
        return _C._legacy_new(cls.dtype, _C.device(device or ("cuda" if cls.is_cuda else "cpu")), args)


def _tensor_type(name, dtype, is_cuda=False):
    attributes = {"dtype": dtype, "is_cuda": is_cuda, "is_xpu": False, "is_sparse": False, "layout": _C.strided}
    return tensortype(name, (), {**attributes, "__module__": "torch.cuda" if is_cuda else "torch"})


TYPES = {f"{name}Tensor": _tensor_type(f"{name}Tensor", dtype) for name, dtype in _NAMES.items()}
CUDA_TYPES = {f"{name}Tensor": _tensor_type(f"{name}Tensor", dtype, True) for name, dtype in _NAMES.items()}


_tensor_classes = {*TYPES.values(), *CUDA_TYPES.values()}


class _SparseType(tensortype):
    """The type of the types of sparse tensors."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, _C.Tensor) and instance.is_sparse and super().__instancecheck__(instance)

    def __call__(cls, *args, device=None):
        from mica import sparse

        place = _C.device(device or ("cuda" if cls.is_cuda else "cpu"))
        if len(args) >= 2 and isinstance(args[0], _C.Tensor):
            return sparse.sparse_coo_tensor(*args, dtype=cls.dtype, device=place)
        size = args[0] if args and not isinstance(args[0], int) else args
        return _C.zeros(tuple(size) or (0,), dtype=cls.dtype, device=place).to_sparse()


def sparse_types(space="torch.sparse", is_cuda=False):
    """torch.sparse.FloatTensor and its like."""
    attributes = {"is_cuda": is_cuda, "is_sparse": True, "layout": _C.sparse_coo, "__module__": space}
    names = {name: dtype for name, dtype in _NAMES.items() if name != "Bool"}
    return {
        f"{name}Tensor": _SparseType(f"{name}Tensor", (), {**attributes, "dtype": dtype})
        for name, dtype in names.items()
    }


def by_name(name):
    """The class that "torch.FloatTensor" or "torch.cuda.FloatTensor" names."""
    table = CUDA_TYPES if ".cuda." in name else TYPES
    try:
        return table[name.rsplit(".", 1)[-1]]
    except KeyError:
        raise ValueError(f"invalid type: '{name}'") from None
