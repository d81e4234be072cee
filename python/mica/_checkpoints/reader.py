"""Reads checkpoints: torch's archives, and the format that came before them."""

import io
import sys
import zlib

from mica import _C
from mica._checkpoints.locations import is_meta, restorer
from mica._checkpoints.memory import view_of
from mica._checkpoints.names import find_class, is_torch_module
from mica._checkpoints.unpickler import Unpickler, UnpicklingError
from mica._checkpoints.writer import LEGACY_MAGIC, LEGACY_PROTOCOL
from mica.storage import TypedStorage, UntypedStorage

# ---- what all formats share


def _unpickler(file, persistent_load, pickle_module, pickle_args):
    """The unpickler for the file's next pickle: one that runs nothing, unless a pickle_module is given."""
    if pickle_module is None:
        return Unpickler(file, encoding=pickle_args["encoding"], persistent_load=persistent_load)

    class TorchUnpickler(pickle_module.Unpickler):
        def find_class(self, module, name):
            if is_torch_module(module) and module.startswith("torch"):
                return find_class(module, name)
            return super().find_class(module, name)

    unpickler = TorchUnpickler(file, **pickle_args)
    unpickler.persistent_load = persistent_load
    return unpickler


def _text(value):
    """Turn the bytes of a file of Python 2, read with encoding="bytes", into text."""
    return value.decode("ascii") if isinstance(value, bytes) else value


def _storage_reference(pid, fields):
    """The checked parts of a persistent id: (dtype, key, location, elements, whatever comes after)."""
    if not isinstance(pid, tuple) or len(pid) not in fields or _text(pid[0]) != "storage":
        raise UnpicklingError(f"{pid!r:.100} does not refer to a storage")
    _, kind, key, location, count, *rest = pid
    dtype = _C.uint8 if kind is UntypedStorage else getattr(kind, "dtype", None)
    key, location = _text(key), _text(location)
    if not isinstance(dtype, _C.dtype) or not isinstance(key, str) or not isinstance(location, str):
        raise UnpicklingError(f"{pid!r:.100} does not refer to a storage")
    if not isinstance(count, int) or count < 0:
        raise UnpicklingError(f"a storage cannot have {count!r:.40} elements")
    return dtype, key, location, count, rest


# ---- archives


# A few bytes can claim to unpack to a thousand times as many. Pickles of large models have a few megabytes, and
# compress to about a tenth.
_MOST_UNPACKED = 64 << 20
_MOST_GROWTH = 100


def record_bytes(archive, name, most=None):
    """A record's bytes, unpacked if somebody has compressed the archive. A compressed one may grow to `most` bytes, by
    default to what a pickle can sensibly have."""
    packed, size, crc, compressed = archive._record_info(name)
    if not compressed:
        return archive._raw_record(name)
    if most is None:
        most = max(_MOST_UNPACKED, _MOST_GROWTH * packed)
    if size > most:
        raise RuntimeError(
            f"PytorchStreamReader failed reading file {name}: it is compressed, and its {packed} bytes would grow to {size}, "
            f"which is more than the {most} that such a record may have: {archive._file} is damaged, or made to exhaust "
            "memory. Save it again uncompressed if you trust it"
        )
    data = archive._raw_record(name)
    try:
        # One byte more than declared is enough to tell that a record is longer; zero would mean no limit.
        data = zlib.decompressobj(-15).decompress(data, size + 1)
        if len(data) != size or (crc and zlib.crc32(data) != crc):
            raise zlib.error("it does not match its size or checksum")
    except zlib.error as error:
        raise RuntimeError(
            f"PytorchStreamReader failed reading file {name}: {error}: {archive._file} is truncated or damaged"
        ) from None
    return data


class _ArchiveStorages:
    """Loads an archive's storages when they are first referred to."""

    def __init__(self, archive, map_location, mapped, skip_data, byteorder):
        self._archive = archive
        self._restore = restorer(map_location)
        self._to_meta = is_meta(map_location)
        self._mapped = mapped
        self._skip_data = skip_data
        self._swapped = byteorder != sys.byteorder
        self._loaded = {}

    def __call__(self, pid):
        dtype, key, location, count, _ = _storage_reference(pid, (5,))
        storage = self._loaded.get(key)
        if storage is None:
            storage = self._loaded[key] = self._load(key, dtype, location, count * dtype.itemsize)
        elif storage.device.type != "meta" and len(storage) < count * dtype.itemsize:
            raise UnpicklingError(f"storage {key} has {len(storage)} bytes, not {count} elements of {dtype}")
        return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)

    def _load(self, key, dtype, location, nbytes):
        name = f"data/{key}"
        _, available, _, compressed = self._archive._record_info(name)
        if nbytes > available:
            raise RuntimeError(
                f"PytorchStreamReader failed reading file {name} of {self._archive._file}: record size ({available} bytes) "
                f"does not match expected size ({nbytes} bytes)"
            )
        if self._to_meta:
            storage = UntypedStorage(nbytes, device="meta")
            storage._checkpoint_offset = self._archive.get_record_offset(name)  # for callers that read the bytes later
            return storage
        if self._skip_data:
            storage = UntypedStorage(nbytes)
        elif compressed:
            storage = _storage_of(record_bytes(self._archive, name, most=nbytes))
        elif self._mapped is not None and self._archive.get_record_offset(name) % dtype.itemsize == 0:
            begin = self._archive.get_record_offset(name)
            storage = self._mapped._part(begin, begin + nbytes)
        else:
            storage = self._archive._storage_record(name)
        if self._swapped and not self._skip_data:
            _swap_bytes(storage, dtype)
        return self._restore(storage, location)


def _storage_of(data):
    storage = UntypedStorage(len(data))
    if data:
        storage._tensor(_C.uint8).copy_(_C.frombuffer(bytearray(data), dtype=_C.uint8))
    return storage


def _swap_bytes(storage, dtype):
    """Turn the bytes of every number around."""
    width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    if width > 1:
        numbers = storage._tensor(_C.uint8)[: len(storage) // width * width].reshape(-1, width)
        numbers.copy_(numbers.flip(1))


def load_archive(archive, *, map_location, pickle_module, pickle_args, skip_data, mapped, default_byteorder):
    """The object in an archive."""
    byteorder = default_byteorder
    if archive.has_record("byteorder"):
        byteorder = record_bytes(archive, "byteorder").decode("ascii", "replace")
        if byteorder not in ("little", "big"):
            raise ValueError(f"Unknown endianness type: {byteorder!r} in {archive._file}")
    storages = _ArchiveStorages(archive, map_location, mapped, skip_data, byteorder)
    file = io.BytesIO(record_bytes(archive, "data.pkl"))
    return _unpickler(file, storages, pickle_module, pickle_args).load()


# ---- the format of old: pickles one after another, then each storage's size and bytes


class _Bounded:
    """A file that never tries to read more bytes than it has left: a size that comes from a pickle may be any number."""

    def __init__(self, file):
        self._file = file
        begin = file.tell()
        self.end = file.seek(0, io.SEEK_END) or file.tell()
        file.seek(begin)
        self.readline = file.readline

    def left(self):
        return self.end - self._file.tell()

    def read(self, count=-1):
        return self._file.read(count if 0 <= count < 65536 else min(count, self.left()))

    def readinto(self, buffer):
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def load_legacy(f, shown, *, map_location, pickle_module, pickle_args, skip_data):
    """The object in a file of the format that torch wrote before its archives."""
    file = _Bounded(f)
    restore = restorer(map_location)
    loaded = {}  # key: (the storage as it is filled, what tensors see, dtype)

    def no_storages(pid):
        raise UnpicklingError("a storage in the header of the file")

    def persistent_load(pid):
        if isinstance(pid, tuple) and pid and _text(pid[0]) == "module" and len(pid) == 4 and pickle_module is not None:
            return pid[1]  # a class, with its source when it was saved
        dtype, key, location, count, rest = _storage_reference(pid, (5, 6))
        if key not in loaded:
            if count * dtype.itemsize > file.left():
                raise UnpicklingError(
                    f"unexpected EOF, storage {key} has {count} elements of {dtype}, the file {file.left()} bytes"
                )
            storage = UntypedStorage(count * dtype.itemsize)
            placed = restore(storage, location)
            loaded[key] = (storage, placed, dtype)
        placed = loaded[key][1]
        if rest and rest[0] is not None:  # a part of the storage, which torch 0.1 had
            _, offset, size = rest[0]
            begin = offset * dtype.itemsize
            placed = placed._part(begin, begin + size * dtype.itemsize)
        return TypedStorage(wrap_storage=placed, dtype=dtype, _internal=True)

    def next_pickle(persistent=no_storages):
        return _unpickler(file, persistent, pickle_module, pickle_args).load()

    if next_pickle() != LEGACY_MAGIC:
        raise RuntimeError(f"Invalid magic number; corrupt file? {shown}")
    version = next_pickle()
    if version != LEGACY_PROTOCOL:
        raise RuntimeError(f"Invalid protocol version: {version!r:.40} in {shown}")
    system = next_pickle()
    little = not isinstance(system, dict) or system.get("little_endian", system.get(b"little_endian", True))
    result = next_pickle(persistent_load)
    keys = next_pickle()
    if not isinstance(keys, list):
        raise RuntimeError(f"the list of storages of {shown} is damaged")
    for key in keys:
        if _text(key) not in loaded:
            raise RuntimeError(f"storage {key!r:.40} of {shown} belongs to no tensor")
        storage, placed, dtype = loaded[_text(key)]
        _read_legacy_storage(file, f"storage {_text(key)} of {shown}", storage, dtype)
        if little != (sys.byteorder == "little"):
            _swap_bytes(storage, dtype)
        if placed is not storage and placed.device.type != "meta":
            placed.copy_(storage)
    return result


def _read_legacy_storage(file, what, storage, dtype):
    count = int.from_bytes(file.read(8), sys.byteorder)
    nbytes = count * dtype.itemsize
    if nbytes != len(storage) or nbytes > file.left():
        raise RuntimeError(
            f"unexpected EOF, expected {max(nbytes - file.left(), 0)} more bytes. The file might be corrupted: {what} has "
            f"{nbytes} bytes, {len(storage)} are asked for and {file.left()} are left"
        )
    target = view_of(storage)
    for begin in range(0, nbytes, 1 << 24):
        data = file.read(min(1 << 24, nbytes - begin))
        target[begin : begin + len(data)] = data
