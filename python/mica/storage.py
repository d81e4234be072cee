"""Storages: the flat memory that tensors view, as bytes (UntypedStorage) or as numbers of a dtype (TypedStorage)."""

from mica import _C
from mica._C import Tensor, UntypedStorage
from mica._methods.typed_storage_warning import (
    _get_always_warn_typed_storage_removal,  # noqa: F401
    _reset_warn_typed_storage_removal,  # noqa: F401
    _set_always_warn_typed_storage_removal,  # noqa: F401
    warn_of_typed_storage,
)
from mica._methods.untyped_storage import (
    _rebuild_untyped,  # noqa: F401 - pickles look for it here
    bytes_of,
    checked_index,
    deepcopy_storage,
    iterate,
    need_data,
    storage_from_buffer,
)

__all__ = ["TypedStorage", "UntypedStorage", "is_storage"]


_NAMES = {
    "Double": _C.float64,
    "Float": _C.float32,
    "Half": _C.float16,
    "BFloat16": _C.bfloat16,
    "Long": _C.int64,
    "Int": _C.int32,
    "Short": _C.int16,
    "Char": _C.int8,
    "Byte": _C.uint8,
    "Bool": _C.bool,
    "ComplexDouble": _C.complex128,
    "ComplexFloat": _C.complex64,
    "QInt8": _C.qint8,
    "QUInt8": _C.quint8,
    "QInt32": _C.qint32,
    "QUInt4x2": _C.quint4x2,
    "QUInt2x4": _C.quint2x4,
}
_NAME_OF_DTYPE = {dtype: name + "Storage" for name, dtype in _NAMES.items()}


def _dtype_to_storage_type_map():
    """The names of the storage classes by their dtypes."""
    return dict(_NAME_OF_DTYPE)


def _storage_type_to_dtype_map():
    """The dtypes of the storage classes by their names."""
    return {name: dtype for dtype, name in _NAME_OF_DTYPE.items()}


# The integer dtypes in which quantized elements are stored.
_INTEGERS = {_C.qint8: _C.int8, _C.quint8: _C.uint8, _C.qint32: _C.int32, _C.quint4x2: _C.uint8, _C.quint2x4: _C.uint8}


def _check_wrapping(args, wrap_storage, dtype, device):
    """Check the arguments for a typed storage over an untyped one, and return its dtype."""
    if args:
        raise RuntimeError("No positional arguments should be given when using 'wrap_storage'")
    if dtype is None:
        raise RuntimeError("Argument 'dtype' must be specified when 'wrap_storage' is given")
    if not isinstance(dtype, _C.dtype):
        raise TypeError(f"Argument 'dtype' must be torch.dtype, not {type(dtype)}")
    if device is not None:
        raise RuntimeError("Argument 'device' should not be specified when 'wrap_storage' is given")
    if not isinstance(wrap_storage, UntypedStorage):
        raise TypeError(f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage)}")
    return dtype


class TypedStorage:
    """A storage seen as numbers of one dtype."""

    _fixed_dtype = None  # of FloatStorage and its like

    def __init__(self, *args, wrap_storage=None, dtype=None, device=None, _internal=False):
        if not _internal:
            warn_of_typed_storage(stacklevel=2)
        if wrap_storage is not None:
            self.dtype = _check_wrapping(args, wrap_storage, dtype, device)
            self._untyped_storage = wrap_storage
            return
        self.dtype = dtype = _C.get_default_dtype() if dtype is None else dtype
        if len(args) > 1:
            raise RuntimeError(f"Too many positional arguments, got {len(args)}, but expected 0 or 1")
        if device is not None and _C.device(device).type in ("xla", "lazy"):
            raise RuntimeError(f"Storage device not recognized: {device}")
        if dtype in _INTEGERS and device is not None and _C.device(device).type == "cuda":
            raise RuntimeError("Cannot create CUDA storage with quantized dtype")
        if not args:
            self._untyped_storage = UntypedStorage(device=device)
        elif hasattr(args[0], "__index__") and not isinstance(args[0], Tensor):  # NumPy's integers too
            self._untyped_storage = UntypedStorage(args[0].__index__() * dtype.itemsize, device=device)
        elif isinstance(args[0], Tensor) or not hasattr(args[0], "__len__"):
            raise TypeError(
                f"Argument type not recognized: {type(args[0])}; expected a number of elements or a sequence"
            )
        elif isinstance(args[0], str):
            raise TypeError("new(): invalid data type 'str'")
        else:
            elements = _C.tensor(args[0], dtype=_INTEGERS.get(dtype, dtype), device=device)
            self._untyped_storage = elements.untyped_storage()

    @classmethod
    def from_buffer(cls, *args, dtype=None, **kwargs):
        """A copy of a buffer's bytes: from_buffer(buffer, byte_order, count=-1, offset=0)."""
        if vars(cls).get("is_cuda") is True:
            raise RuntimeError("Not available for CUDA storage")
        if not args and "buffer" not in kwargs:
            raise TypeError("function missing required argument 'buffer' (pos 1)")
        dtype = cls._fixed_dtype or dtype or _C.get_default_dtype()
        made = storage_from_buffer(*args, dtype=dtype, **kwargs)
        return TypedStorage(wrap_storage=made, dtype=dtype, _internal=True)

    def _tensor(self):
        return self._untyped_storage._tensor(_INTEGERS.get(self.dtype, self.dtype))

    def _wrap(self, untyped, dtype=None):
        return TypedStorage(wrap_storage=untyped, dtype=dtype or self.dtype, _internal=True)

    def untyped(self):
        return self._untyped_storage

    def __len__(self):
        return len(self._untyped_storage) // self.dtype.itemsize

    size = __len__

    def __getitem__(self, index):
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, int):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        need_data(self)
        return self._tensor()[checked_index(index, len(self))].item()

    def __setitem__(self, index, value):
        if not isinstance(index, (int, slice)):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        self._tensor()[index if isinstance(index, slice) else checked_index(index, len(self))] = value

    __iter__ = iterate

    def __eq__(self, other):
        if not isinstance(other, TypedStorage):
            return NotImplemented
        return self.dtype == other.dtype and self._untyped_storage is other._untyped_storage

    def __hash__(self):
        return hash((self.dtype, self._untyped_storage._cdata))

    def __repr__(self):
        where = f"torch.storage.TypedStorage(dtype={self.dtype}, device={self.device})"
        if self.device.type == "meta":
            return f"...\n[{where} of size {len(self)}]"
        return "".join(f" {value}\n" for value in self.tolist()) + f"[{where} of size {len(self)}]"

    def __copy__(self):
        return self.clone()

    def __deepcopy__(self, memo):
        return self._wrap(deepcopy_storage(self._untyped_storage, memo))

    def __reduce__(self):
        return _rebuild_typed, (self._untyped_storage, self.dtype)

    @property
    def device(self):
        return self._untyped_storage.device

    @property
    def is_cuda(self):
        return self.device.type == "cuda"

    @property
    def _cdata(self):
        return self._untyped_storage._cdata

    def tolist(self):
        need_data(self)
        return self._tensor().tolist()

    def copy_(self, source, non_blocking=False):
        self._tensor().copy_(source._tensor() if isinstance(source, TypedStorage) else bytes_of(source), non_blocking)
        return self

    def fill_(self, value):
        if is_storage(value):
            raise RuntimeError(f"cannot set item with {type(value)}")
        self._tensor().fill_(value)
        return self

    def clone(self):
        return self._wrap(self._untyped_storage.clone())

    def resize_(self, size):
        self._untyped_storage.resize_(size * self.dtype.itemsize)
        return self

    def nbytes(self):
        return self._untyped_storage.nbytes()

    def __sizeof__(self):
        return super().__sizeof__() + self.nbytes()

    def element_size(self):
        return self.dtype.itemsize

    def data_ptr(self):
        return self._untyped_storage.data_ptr()

    def resizable(self):
        return self._untyped_storage.resizable()

    def get_device(self):
        return self._untyped_storage.get_device()

    def is_shared(self):
        return self._untyped_storage.is_shared()

    def share_memory_(self):
        self._untyped_storage.share_memory_()
        return self

    def _share_fd_cpu_(self):
        descriptor, nbytes = self._untyped_storage._share_fd_cpu_()
        return descriptor, nbytes // self.dtype.itemsize

    def _share_filename_cpu_(self):
        return self._untyped_storage._share_filename_cpu_()

    def _write_file(self, file, is_real_file, save_size, element_size):
        self._untyped_storage._write_file(file, is_real_file, save_size, element_size)

    def is_pinned(self, device="cuda"):
        return self._untyped_storage.is_pinned(device)

    def pin_memory(self, device=None):
        return self._wrap(self._untyped_storage.pin_memory(device))

    def to(self, *, device, non_blocking=False):
        return self._wrap(self._untyped_storage.to(device=device, non_blocking=non_blocking))

    def cpu(self):
        return self.to(device="cpu")

    def cuda(self, device=None, non_blocking=False):
        if self.dtype in _INTEGERS:
            raise RuntimeError("Cannot create CUDA storage with quantized dtype")
        return self._wrap(self._untyped_storage.cuda(device, non_blocking))

    def _to(self, dtype):
        return self._wrap(self._tensor().to(dtype, copy=True).untyped_storage(), dtype)

    def type(self, dtype=None, non_blocking=False):
        if dtype is None:
            return "torch." + self.pickle_storage_type()
        return self._to(_NAMES[dtype.rsplit(".", 1)[-1].removesuffix("Storage")] if isinstance(dtype, str) else dtype)

    def pickle_storage_type(self):
        try:
            return _NAME_OF_DTYPE[self.dtype]
        except KeyError:
            raise KeyError(f"dtype {self.dtype} is not recognized") from None

    @classmethod
    def from_file(cls, filename, shared, size):
        dtype = cls._fixed_dtype or _C.get_default_dtype()
        mapped = UntypedStorage.from_file(filename, shared, size * dtype.itemsize)
        return TypedStorage(wrap_storage=mapped, dtype=dtype, _internal=True)


TypedStorage.filename = property(lambda self: self._untyped_storage.filename)
# Under torch's names for the same, without a warning that typed storages are old.
TypedStorage._dtype = property(lambda self: self.dtype)
for _name in (
    *("size", "nbytes", "data_ptr", "element_size", "resize_", "is_shared", "share_memory_", "pickle_storage_type"),
    *("__setitem__", "__getitem__", "__deepcopy__"),
):
    setattr(TypedStorage, "_" + _name.strip("_" if _name.startswith("__") else ""), getattr(TypedStorage, _name))


def _conversion(dtype):
    return lambda self: self._to(dtype)


def _conversion_of_bytes(dtype):
    """UntypedStorage.float and its like: each byte as a number of the dtype."""
    return lambda self: TypedStorage(wrap_storage=self, dtype=_C.uint8, _internal=True)._to(dtype)


for _name, _dtype in {
    "double": _C.float64,
    "float": _C.float32,
    "half": _C.float16,
    "bfloat16": _C.bfloat16,
    "long": _C.int64,
    "int": _C.int32,
    "short": _C.int16,
    "char": _C.int8,
    "byte": _C.uint8,
    "bool": _C.bool,
    "complex_double": _C.complex128,
    "complex_float": _C.complex64,
    **{f"float8_{each}": getattr(_C, f"float8_{each}") for each in ("e5m2", "e4m3fn", "e5m2fnuz", "e4m3fnuz")},
}.items():
    setattr(TypedStorage, _name, _conversion(_dtype))
    setattr(UntypedStorage, _name, _conversion_of_bytes(_dtype))


def _rebuild_typed(untyped, dtype):
    return TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


class _StorageClass(type):
    """The type of FloatStorage and its like. A TypedStorage of the dtype is an instance; for the classes of torch.cuda it has
    to be on a GPU too."""

    def __instancecheck__(cls, instance):
        return (
            isinstance(instance, TypedStorage)
            and instance.dtype == cls._fixed_dtype
            and (not cls.is_cuda or instance.is_cuda)
        )

    def __call__(cls, *args, dtype=None, device=None, wrap_storage=None, _internal=False):
        if cls._fixed_dtype is None:
            raise RuntimeError("Only child classes of _LegacyStorage can be instantiated")
        for name, value in (("device", device), ("dtype", dtype)):
            if value is not None:
                raise RuntimeError(f"{cls}: Keyword argument {name!r} cannot be specified")
        where = "cuda" if cls.is_cuda else "cpu"
        if wrap_storage is None:
            return TypedStorage(*args, dtype=cls._fixed_dtype, device=where, _internal=_internal)
        _check_wrapping(args, wrap_storage, cls._fixed_dtype, None)
        if wrap_storage.device.type != where:
            raise RuntimeError(f"Device of 'wrap_storage' must be {where}, but got {wrap_storage.device.type}")
        return TypedStorage(wrap_storage=wrap_storage, dtype=cls._fixed_dtype, _internal=_internal)


class _LegacyStorage(TypedStorage, metaclass=_StorageClass):
    """The base of FloatStorage and its like, which make a TypedStorage of their dtype when they are called."""


def _not_on_cuda(*args, **kwargs):
    raise RuntimeError("Not available for CUDA storage")


def _storage_class(name, dtype, is_cuda=False):
    module = "torch.cuda" if is_cuda else "torch"
    members = {"_fixed_dtype": dtype, "_dtype": dtype, "dtype": dtype, "is_cuda": is_cuda, "__module__": module}
    if is_cuda:
        members |= dict.fromkeys(("_new_with_weak_ptr", "_new_shared_filename"), staticmethod(_not_on_cuda))
    return _StorageClass(name, (_LegacyStorage,), members)


_CLASSES = {name + "Storage": _storage_class(name + "Storage", dtype) for name, dtype in _NAMES.items()}
globals().update(_CLASSES)
__all__ += list(_CLASSES)


_storage_classes = {UntypedStorage, TypedStorage, *_CLASSES.values()}


def is_storage(obj):
    """Whether the object is a storage."""
    return isinstance(obj, (UntypedStorage, TypedStorage))


def storage_class(dtype):
    """FloatStorage for float32, and so on."""
    return _CLASSES[_NAME_OF_DTYPE[dtype]]


_cuda_classes = {}


def cuda_storage_class(name):
    """torch.cuda.FloatStorage and its like, or None for another name."""
    if name not in _cuda_classes and name in _CLASSES:
        _cuda_classes[name] = _storage_class(name, _CLASSES[name]._fixed_dtype, is_cuda=True)
    return _cuda_classes.get(name)


# ---- pickles that torch reads


def __getattr__(name):
    # torch's function that reads the pickle of a storage, which is a file of its own.
    if name == "_load_from_bytes":
        from mica._checkpoints import storage_pickles

        return storage_pickles._load_from_bytes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
