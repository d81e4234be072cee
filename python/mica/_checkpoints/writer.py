"""Writes checkpoints: an object's pickle, and beside it the bytes of the storages that it refers to."""

import copyreg
import io
import sys
import warnings

from mica import _C
from mica._checkpoints.locations import location_tag
from mica._checkpoints.memory import view_of
from mica._checkpoints.names import get_layout, name_in_file
from mica._utils import _rebuild_from_type_v2
from mica.storage import TypedStorage, UntypedStorage, storage_class

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001


def _reduce_layout(layout):
    return get_layout, (str(layout),)


def _reduce_size(size):
    return _C.Size, (tuple(size),)


def _reduce_device(device):
    return _C.device, (device.type,) if device.index is None else (device.type, device.index)


def _reduce_tensor(tensor):
    """Pickle a tensor as torch reads it: torch knows no negative strides, and names a plain tensor's class."""
    if tensor.layout is _C.strided and any(stride < 0 for stride in tensor.stride()):
        requires_grad = tensor.requires_grad
        tensor = tensor.detach().contiguous().requires_grad_(requires_grad)
    function, arguments = tensor.__reduce_ex__(2)
    if function is _rebuild_from_type_v2 and arguments[1] is None:
        arguments = (arguments[0], _C.Tensor, *arguments[2:])
    return function, arguments


_REDUCERS = {_C.layout: _reduce_layout, _C.Size: _reduce_size, _C.device: _reduce_device, _C.Tensor: _reduce_tensor}


class _Storages:
    """The storages of one file: each gets a key when it is first met."""

    def __init__(self):
        self.by_key = {}
        self._keys = {}
        self._dtypes = {}

    def describe(self, obj):
        """(the class, the key, the location, the number of elements), as files refer to a storage."""
        if isinstance(obj, TypedStorage):
            storage, dtype = obj._untyped_storage, obj.dtype
            kind, count = storage_class(dtype), len(obj)
        else:
            storage, dtype, kind, count = obj, _C.uint8, UntypedStorage, len(obj)
        address = 0 if storage.device.type == "meta" else storage.data_ptr()
        if address and self._dtypes.setdefault(address, dtype) != dtype:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types")
        key = self._keys.setdefault(storage._cdata, str(len(self._keys)))
        self.by_key[key] = storage
        return kind, key, location_tag(storage), count

    def bytes_of(self, key):
        storage = self.by_key[key]
        return storage if storage.device.type == "cpu" else storage.cpu()


class _WithoutData:
    """How tensors are pickled whose bytes are not written."""

    def __init__(self, materialize):
        self._materialize = materialize
        self._stand_ins = {}  # storages of fake tensors, by address: memory that is never touched

    def __call__(self, obj):
        if not isinstance(obj, _C.Tensor):
            return NotImplemented
        if obj.is_nested:
            raise RuntimeError("Cannot serialize nested tensor under skip_data context manager, no impl")
        if self._materialize and hasattr(obj, "fake_device"):
            return self._reduce_fake(obj)
        if obj.device.type == "meta":
            warnings.warn(
                "Serializing tensors on the meta device under skip_data context manager is a no-op", stacklevel=2
            )
        return NotImplemented

    def _reduce_fake(self, fake):
        """A fake tensor as the real one that it stands for."""
        held = fake.untyped_storage()
        if held._cdata not in self._stand_ins:
            self._stand_ins[held._cdata] = (UntypedStorage(held.nbytes(), device=fake.fake_device), held)
        stand_in = self._stand_ins[held._cdata][0]
        place = (fake.storage_offset(), tuple(fake.size()), tuple(fake.stride()))
        made = _C.empty(0, dtype=fake.dtype, device=fake.fake_device)._set_storage(stand_in, *place)
        return _reduce_tensor(made.requires_grad_(fake.requires_grad))


def _pickled(obj, pickle_module, protocol, storage_id, override=None):
    """The pickle of an object, in torch's names; storage_id(storage) is what stands for a storage."""
    names = {}  # by id: the objects live as long as the pickler does
    table = {**copyreg.dispatch_table, **_REDUCERS}

    class Pickler(pickle_module.Pickler):
        dispatch_table = table

        def persistent_id(self, obj):
            if isinstance(obj, (TypedStorage, UntypedStorage)):
                return storage_id(obj)
            if type(obj) in _PLAIN:
                return None
            try:
                return names[id(obj)][0]
            except KeyError:
                name = name_in_file(obj)
                if name is not None:
                    names[id(obj)] = (name, obj)
                return name

    if override is not None:
        Pickler.reducer_override = lambda self, obj: override(obj)
    buffer = io.BytesIO()
    try:
        Pickler(buffer, protocol=protocol).dump(obj)
    finally:
        # A class is a cycle, which would keep the storages alive until it is collected.
        del Pickler.persistent_id
        Pickler.reducer_override = None
    return _C._resolve_named_globals(buffer.getvalue())


_PLAIN = {type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, _C.Tensor}


def save_archive(obj, writer, pickle_module, protocol, *, with_byteorder, skip_data, materialize=False, alignment=64):
    """Write the object's records into an archive."""
    storages = _Storages()
    override = _WithoutData(materialize) if skip_data else None
    data = _pickled(obj, pickle_module, protocol, lambda storage: ("storage", *storages.describe(storage)), override)
    writer.write_record("data.pkl", data, len(data))
    writer.write_record(".format_version", "1", 1)
    writer.write_record(".storage_alignment", str(alignment), len(str(alignment)))
    if with_byteorder:
        writer.write_record("byteorder", sys.byteorder, len(sys.byteorder))
    for key, storage in storages.by_key.items():
        if skip_data or storage.device.type == "meta":
            writer.write_record_metadata(f"data/{key}", storage.nbytes())
        else:
            writer.write_record(f"data/{key}", storages.bytes_of(key), storage.nbytes())


def save_legacy(obj, f, pickle_module, protocol):
    """Write the format of old: pickles one after another, then each storage's size and bytes."""
    storages = _Storages()
    dtypes = {}

    def storage_id(storage):
        kind, key, location, count = storages.describe(storage)
        dtypes[key] = storage.dtype if isinstance(storage, TypedStorage) else _C.uint8
        return ("storage", kind, key, location, count, None)

    system = {
        "protocol_version": LEGACY_PROTOCOL,
        "little_endian": sys.byteorder == "little",
        "type_sizes": {"short": 2, "int": 4, "long": 8},
    }
    parts = [pickle_module.dumps(header, protocol=protocol) for header in (LEGACY_MAGIC, LEGACY_PROTOCOL, system)]
    parts.append(_pickled(obj, pickle_module, protocol, storage_id))
    keys = sorted(storages.by_key)
    parts.append(pickle_module.dumps(keys, protocol=protocol))
    for key in keys:
        storage = storages.bytes_of(key)
        count = storage.nbytes() // dtypes[key].itemsize
        parts.append(count.to_bytes(8, sys.byteorder))
        parts.append(view_of(storage)[: count * dtypes[key].itemsize])
    if isinstance(f, str):
        _C._write_file(f, parts)
        return
    for part in parts:
        f.write(part)
    if hasattr(f, "flush"):
        f.flush()
