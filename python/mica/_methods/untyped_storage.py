"""UntypedStorage's methods that are written in Python, by means of a tensor of bytes over the storage."""

import sys

from mica import _C
from mica._C import UntypedStorage


def need_data(storage):
    if storage.device.type == "meta":
        raise NotImplementedError("Not available for 'meta' device type")


def checked_index(index, size):
    if not -size <= index < size:
        raise IndexError(f"index {index} out of range for storage of size {size}")
    return index % size


def deepcopy_storage(storage, memo):
    """A copy of the bytes, one for all the tensors of a deep copy that share them."""
    done = memo.setdefault("mica storages", {})
    key = storage._cdata
    if key not in done:
        done[key] = (storage.clone(), storage)  # the original is kept alive, so that no other storage gets its address
    return done[key][0]


def bytes_of(storage):
    return storage._tensor(_C.uint8)


def _untyped_getitem(self, index):
    if isinstance(index, slice):
        begin, end, step = index.indices(len(self))
        if step != 1:
            raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
        return self._part(begin, max(begin, end))
    need_data(self)
    return bytes_of(self)[checked_index(index, len(self))].item()


def _untyped_setitem(self, index, value):
    if isinstance(index, slice):
        bytes_of(self)[index] = bytes_of(value) if isinstance(value, UntypedStorage) else value
    else:
        bytes_of(self)[checked_index(index, len(self))] = value


def _untyped_tolist(self):
    need_data(self)
    return bytes_of(self).tolist()


def _untyped_byteswap(self, dtype):
    """Turn the bytes of each number of the dtype around, in place."""
    if not isinstance(dtype, _C.dtype):
        raise RuntimeError(f"expected torch.dtype, but got {type(dtype)}")
    size = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    if len(self) % size:
        raise RuntimeError(f"the length of data is not a multiple of {size}")
    if size > 1:
        each = bytes_of(self).view(-1, size)
        each.copy_(each.flip(1))


def _untyped_repr(self):
    where = f"torch.storage.UntypedStorage(device={self.device})"
    if self.device.type == "meta":
        return f"...\n[{where} of size {len(self)}]"
    return "".join(f" {byte}\n" for byte in self.tolist()) + f"[{where} of size {len(self)}]"


def _untyped_copy(self, source, non_blocking=False):
    bytes_of(self).copy_(bytes_of(getattr(source, "_untyped_storage", source)), non_blocking)
    return self


def _untyped_fill(self, value):
    bytes_of(self).fill_(value)
    return self


def _untyped_clone(self):
    return type(self)(len(self), device=self.device).copy_(self)


def _untyped_to(self, *, device, non_blocking=False):
    return (
        self
        if _C.device(device) == self.device
        else bytes_of(self).to(device, non_blocking=non_blocking).untyped_storage()
    )


def _share_filename_cpu_(self):
    if self.device.type != "cpu":
        raise RuntimeError(f"_share_filename_: only available on CPU, not on {self.device}")
    raise NotImplementedError("_share_filename_cpu_: Mica shares memory by descriptors; use _share_fd_cpu_()")


def _write_file(self, file, is_real_file, save_size, element_size):
    """Write the number of elements, where it is asked for, and the bytes, in the order of old files."""
    if self.device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    data = self.cpu()
    if sys.byteorder == "big" and element_size > 1:
        data = data.clone()
        data.byteswap({2: _C.int16, 4: _C.int32, 8: _C.int64}[element_size])
    if save_size:
        file.write((len(self) // element_size).to_bytes(8, "little"))
    file.write(bytes(data))
    if is_real_file:
        file.flush()


def reduce_untyped(self, protocol):
    if self.device.type == "meta":
        return type(self), (len(self),), {"device": self.device}
    return _rebuild_untyped, (bytes(self.cpu()),)


def _rebuild_untyped(data):
    made = UntypedStorage(len(data))
    if data:
        bytes_of(made).copy_(_C.frombuffer(bytearray(data), dtype=_C.uint8))
    return made


def storage_from_buffer(buffer, byte_order=None, count=-1, offset=0, *, dtype=None):
    """A copy of a buffer's bytes as numbers of a dtype, turned around where they have another byte order."""
    if dtype is None:
        raise RuntimeError("argument 'dtype' cannot be None")
    if byte_order is None and dtype not in (_C.uint8, _C.int8):
        raise RuntimeError("function missing required argument 'byte_order' (pos 2)")
    if byte_order not in (None, "big", "little", "native"):
        raise ValueError(f"invalid byte_order {byte_order!r} (expected 'big', 'little', or 'native')")
    try:
        data = bytes(memoryview(buffer))
    except TypeError:
        raise TypeError(f"a bytes-like object is required, not {type(buffer).__name__!r}") from None
    if not 0 <= offset <= len(data):
        raise ValueError(
            f"offset must be non-negative and no greater than buffer length ({len(data)}), but got {offset}"
        )
    left = len(data) - offset
    if count < 0:
        if left % dtype.itemsize:
            raise ValueError(f"buffer size ({len(data)}) must be a multiple of element size ({dtype.itemsize})")
        count = left // dtype.itemsize
    if count * dtype.itemsize > left:
        raise ValueError(f"buffer has only {left} elements after offset {offset}, but specified a size of {count}")
    made = _rebuild_untyped(data[offset : offset + count * dtype.itemsize])
    if dtype == _C.bool and count:
        bytes_of(made).copy_(bytes_of(made) != 0)
    if byte_order in ("big", "little") and byte_order != sys.byteorder:
        made.byteswap(dtype)
    return made


def iterate(self):
    return iter(self.tolist())


for _name, _function in {
    "__getitem__": _untyped_getitem,
    "__setitem__": _untyped_setitem,
    "__iter__": iterate,
    "__repr__": _untyped_repr,
    "__copy__": lambda self: self.clone(),
    "__deepcopy__": deepcopy_storage,
    "__reduce_ex__": reduce_untyped,
    "tolist": _untyped_tolist,
    "byteswap": _untyped_byteswap,
    "filename": property(lambda self: getattr(self, "_filename", None)),  # for a storage that writes to a file
    "from_buffer": staticmethod(storage_from_buffer),
    "copy_": _untyped_copy,
    "fill_": _untyped_fill,
    "clone": _untyped_clone,
    "new": lambda self: type(self)(device=self.device),
    "to": _untyped_to,
    "_share_filename_cpu_": _share_filename_cpu_,
    "_write_file": _write_file,
    "cpu": lambda self: self.to(device="cpu"),
    "cuda": lambda self, device=None, non_blocking=False: self.to(device=device or "cuda", non_blocking=non_blocking),
    "untyped": lambda self: self,
    "is_pinned": lambda self, device="cuda": bytes_of(self).is_pinned(),
    "pin_memory": lambda self, device=None: bytes_of(self).pin_memory().untyped_storage(),
    "is_cuda": property(lambda self: self.device.type == "cuda"),
    "get_device": lambda self: self.device.index if self.device.index is not None else -1,
    "type": lambda self: "torch.storage.UntypedStorage",
    "__sizeof__": lambda self: object.__sizeof__(self) + self.nbytes(),
}.items():
    setattr(UntypedStorage, _name, _function)
    if hasattr(_function, "__name__") and _function.__name__ != _name:
        _function.__name__ = _name

_rebuild_untyped.__module__ = "mica.storage"  # the name in pickles
