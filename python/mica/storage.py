"""Storages: the flat memory that tensors view, as bytes (UntypedStorage) or as numbers of a dtype (TypedStorage)."""

from mica import _C
from mica._C import UntypedStorage
from mica._functions.once import warn_once

__all__ = ["TypedStorage", "UntypedStorage", "is_storage"]


def _checked_index(index, size):
    if not -size <= index < size:
        raise IndexError(f"index {index} out of range for storage of size {size}")
    return index % size


def _deepcopy_storage(storage, memo):
    """A copy of the bytes, one for all the tensors of a deep copy that share them."""
    done = memo.setdefault("mica storages", {})
    key = storage._cdata
    if key not in done:
        done[key] = (storage.clone(), storage)  # the original is kept, so that its address stays its own
    return done[key][0]


# ---- UntypedStorage: what a tensor of bytes over it can say


def _bytes_of(storage):
    return storage._tensor(_C.uint8)


def _untyped_getitem(self, index):
    if isinstance(index, slice):
        begin, end, step = index.indices(len(self))
        if step != 1:
            raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
        return self._part(begin, max(begin, end))
    return _bytes_of(self)[_checked_index(index, len(self))].item()


def _untyped_setitem(self, index, value):
    if isinstance(index, slice):
        _bytes_of(self)[index] = _bytes_of(value) if isinstance(value, UntypedStorage) else value
    else:
        _bytes_of(self)[_checked_index(index, len(self))] = value


def _untyped_repr(self):
    where = f"torch.storage.UntypedStorage(device={self.device})"
    if self.device.type == "meta":
        return f"...\n[{where} of size {len(self)}]"
    return "".join(f" {byte}\n" for byte in self.tolist()) + f"[{where} of size {len(self)}]"


def _untyped_copy(self, source, non_blocking=False):
    _bytes_of(self).copy_(_bytes_of(getattr(source, "_untyped_storage", source)), non_blocking)
    return self


def _untyped_fill(self, value):
    _bytes_of(self).fill_(value)
    return self


def _untyped_clone(self):
    return type(self)(len(self), device=self.device).copy_(self)


def _untyped_to(self, *, device, non_blocking=False):
    return (
        self
        if _C.device(device) == self.device
        else _bytes_of(self).to(device, non_blocking=non_blocking).untyped_storage()
    )


def _untyped_reduce(self, protocol):
    if self.device.type == "meta":
        return type(self), (len(self),), {"device": self.device}
    return _rebuild_untyped, (bytes(self.cpu()),)


def _rebuild_untyped(data):
    made = UntypedStorage(len(data))
    if data:
        _bytes_of(made).copy_(_C.frombuffer(bytearray(data), dtype=_C.uint8))
    return made


def _iterate(self):
    return iter(self.tolist())


for _name, _function in {
    "__getitem__": _untyped_getitem,
    "__setitem__": _untyped_setitem,
    "__iter__": _iterate,
    "__repr__": _untyped_repr,
    "__copy__": lambda self: self.clone(),
    "__deepcopy__": _deepcopy_storage,
    "__reduce_ex__": _untyped_reduce,
    "tolist": lambda self: _bytes_of(self).tolist(),
    "copy_": _untyped_copy,
    "fill_": _untyped_fill,
    "clone": _untyped_clone,
    "new": lambda self: type(self)(device=self.device),
    "to": _untyped_to,
    "cpu": lambda self: self.to(device="cpu"),
    "cuda": lambda self, device=None, non_blocking=False: self.to(device=device or "cuda", non_blocking=non_blocking),
    "untyped": lambda self: self,
    "is_pinned": lambda self, device="cuda": False,
    "is_cuda": property(lambda self: self.device.type == "cuda"),
    "get_device": lambda self: self.device.index if self.device.index is not None else -1,
    "type": lambda self: "torch.storage.UntypedStorage",
    "__sizeof__": lambda self: object.__sizeof__(self) + self.nbytes(),
}.items():
    setattr(UntypedStorage, _name, _function)
    if hasattr(_function, "__name__") and _function.__name__ != _name:
        _function.__name__ = _name


# ---- TypedStorage

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
}
_NAME_OF_DTYPE = {dtype: name + "Storage" for name, dtype in _NAMES.items()}


def warn_of_typed_storage(stacklevel):
    """Say once that typed storages are old."""
    warn_once(
        "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage "
        "class. This should only matter to you if you are using storages directly.  To access UntypedStorage directly, "
        "use tensor.untyped_storage() instead of tensor.storage()",
        stacklevel=stacklevel + 1,
    )


class TypedStorage:
    """A storage seen as numbers of one dtype."""

    _fixed_dtype = None  # of FloatStorage and its like

    def __init__(self, *args, wrap_storage=None, dtype=None, device=None, _internal=False):
        if not _internal:
            warn_of_typed_storage(stacklevel=2)
        dtype = self._fixed_dtype or dtype or (None if wrap_storage is not None else _C.get_default_dtype())
        if dtype is None:
            raise RuntimeError("Argument 'dtype' must be specified when 'wrap_storage' is given")
        self.dtype = dtype
        if len(args) > 1:
            raise TypeError(f"Too many positional arguments, got {len(args)}, but expected 0 or 1")
        if wrap_storage is not None:
            if args:
                raise RuntimeError("No positional arguments should be given when using 'wrap_storage'")
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage)}")
            self._untyped_storage = wrap_storage
        elif not args:
            self._untyped_storage = UntypedStorage(device=device)
        elif isinstance(args[0], int):
            self._untyped_storage = UntypedStorage(args[0] * dtype.itemsize, device=device)
        else:
            self._untyped_storage = _C.tensor(args[0], dtype=dtype, device=device).untyped_storage()

    def _tensor(self):
        return self._untyped_storage._tensor(self.dtype)

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
        return self._tensor()[_checked_index(index, len(self))].item()

    def __setitem__(self, index, value):
        if not isinstance(index, (int, slice)):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        self._tensor()[index if isinstance(index, slice) else _checked_index(index, len(self))] = value

    __iter__ = _iterate

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
        return self._wrap(_deepcopy_storage(self._untyped_storage, memo))

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
        return self._tensor().tolist()

    def copy_(self, source, non_blocking=False):
        self._tensor().copy_(source._tensor() if isinstance(source, TypedStorage) else _bytes_of(source), non_blocking)
        return self

    def fill_(self, value):
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

    def is_pinned(self, device="cuda"):
        return False

    def cpu(self):
        return self._wrap(self._untyped_storage.cpu())

    def cuda(self, device=None, non_blocking=False):
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
        return cls(wrap_storage=UntypedStorage.from_file(filename, shared, size * dtype.itemsize), dtype=dtype)


def _conversion(dtype):
    return lambda self: self._to(dtype)


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
}.items():
    setattr(TypedStorage, _name, _conversion(_dtype))


def _rebuild_typed(untyped, dtype):
    return TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


class _StorageClass(type):
    """The type of FloatStorage and its like: whatever TypedStorage has the dtype is an instance; of those of torch.cuda
    whatever is on a GPU besides."""

    def __instancecheck__(cls, instance):
        return (
            isinstance(instance, TypedStorage)
            and instance.dtype == cls._fixed_dtype
            and (not cls.is_cuda or instance.is_cuda)
        )

    def __call__(cls, *args, **kwargs):
        if kwargs.get("wrap_storage") is None:
            kwargs.pop("wrap_storage", None)
            if cls.is_cuda:
                kwargs.setdefault("device", "cuda")
        return TypedStorage(*args, dtype=cls._fixed_dtype, **kwargs)


def _storage_class(name, dtype, is_cuda=False):
    module = "torch.cuda" if is_cuda else "torch"
    made = _StorageClass(name, (), {"_fixed_dtype": dtype, "dtype": dtype, "is_cuda": is_cuda, "__module__": module})
    made.from_file = classmethod(TypedStorage.from_file.__func__)
    return made


_CLASSES = {name + "Storage": _storage_class(name + "Storage", dtype) for name, dtype in _NAMES.items()}
globals().update(_CLASSES)
__all__ += list(_CLASSES)


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


def _load_from_bytes(b):
    """The storage that a plain pickle of torch's holds: as a file of its own."""
    import io

    from mica.serialization import load

    return load(io.BytesIO(b), weights_only=False)


def _reduce_as_torch(self, protocol=2):
    """What plain pickles hold where torch is Mica: a file of the storage, as torch's pickles do."""
    import io

    from mica.serialization import save

    if self.device.type == "meta":
        return _untyped_reduce(self, protocol)
    file = io.BytesIO()
    save(self, file, _use_new_zipfile_serialization=False)
    return _load_from_bytes, (file.getvalue(),)
