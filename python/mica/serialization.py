"""save and load: checkpoints in torch's file format, in both directions."""

import contextlib
import enum
import io
import mmap as _mmap
import os
import pickle
import sys
import threading
import warnings

from mica import _C
from mica._checkpoints.locations import default_restore_location, location_tag, register_package
from mica._checkpoints.names import get_layout as _get_layout  # noqa: F401 - torch's programs know it by this name
from mica._checkpoints.reader import load_archive, load_legacy, record_bytes
from mica._checkpoints.safe_globals import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    is_allowed,
    safe_globals,
)
from mica._checkpoints.versions import SourceChangeWarning, check_module_version_greater_or_equal
from mica._checkpoints.writer import save_archive, save_legacy
from mica.utils.serialization import config

__all__ = [
    "LoadEndianness",
    "SourceChangeWarning",
    "add_safe_globals",
    "check_module_version_greater_or_equal",
    "clear_safe_globals",
    "default_restore_location",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "location_tag",
    "register_package",
    "safe_globals",
    "save",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
]

DEFAULT_PROTOCOL = 2
MAP_SHARED, MAP_PRIVATE = _mmap.MAP_SHARED, _mmap.MAP_PRIVATE
_UNSAFE = (
    "weights_only=False loads such files too, but runs whatever code is in them: do it only if you trust where the file "
    "comes from."
)

# ---- names


def normalize_storage_type(storage_type):
    """The class of CPU storages that has the name of a class of storages."""
    import mica

    return getattr(mica, storage_type.__name__)


# ---- settings


class LoadEndianness(enum.Enum):
    """The byte order taken for files that do not say theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


def get_default_load_endianness():
    """The byte order taken for files that do not say theirs; None is little-endian."""
    return config.load.endianness


def set_default_load_endianness(endianness):
    """Set the byte order taken for files that do not say theirs."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    config.load.endianness = endianness


def get_crc32_options():
    """Whether saved records get checksums."""
    return config.save.compute_crc32


def set_crc32_options(compute_crc32):
    """Say whether saved records get checksums. Without them damage goes unnoticed."""
    config.save.compute_crc32 = bool(compute_crc32)


def get_default_mmap_options():
    """How load(mmap=True) maps files."""
    return config.load.mmap_flags


class set_default_mmap_options:
    """Let load(mmap=True) map files with MAP_PRIVATE, or MAP_SHARED: changes of tensors go to the file. Also a context."""

    def __init__(self, flags):
        if flags not in (MAP_PRIVATE, MAP_SHARED):
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, "
                f"but got {flags}"
            )
        self._before, config.load.mmap_flags = config.load.mmap_flags, flags

    def __enter__(self):
        pass

    def __exit__(self, *exception):
        config.load.mmap_flags = self._before


class _Local(threading.local):
    skip_data = False
    materialize_fake_tensors = False


_local = _serialization_tls = _Local()


class skip_data:
    """A context in which save writes a file with room for the tensors' bytes, and load leaves them as memory is."""

    def __init__(self, materialize_fake_tensors=False):
        self._fake = materialize_fake_tensors

    def __enter__(self):
        self._before = _local.skip_data, _local.materialize_fake_tensors
        _local.skip_data, _local.materialize_fake_tensors = True, self._fake

    def __exit__(self, *exception):
        _local.skip_data, _local.materialize_fake_tensors = self._before


# ---- save


def save(
    obj,
    f,
    pickle_module=pickle,
    pickle_protocol=DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization=True,
    _disable_byteorder_record=False,
):
    """Save an object to a file in torch's format.

    Args:
        obj: a tensor, a state dict, or any object that can be pickled
        f: a path, or a file that is open for writing
        pickle_module, pickle_protocol: how objects that are not tensors are pickled
        _use_new_zipfile_serialization: False writes torch's older format

    Tensors that share memory will share it again when they are loaded. Written to a path, the file appears when it is
    complete: until then, and if saving fails, what was there before stays.
    """
    if isinstance(f, (str, os.PathLike)):
        f = os.fspath(f)
        folder = os.path.dirname(f)
        if folder and not os.path.isdir(folder):
            raise RuntimeError(f"Parent directory {folder} does not exist.")
        if os.path.isdir(f):
            raise RuntimeError(f"File {f} cannot be opened: it is a folder.")
    elif not hasattr(f, "write"):
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")
    elif not callable(f.write):
        raise TypeError(f"'write' of a file-like object is called, and {type(f.write).__name__!r} is not callable")
    if _use_new_zipfile_serialization:
        writer = config.file_writer(f)
        try:
            save_archive(
                obj,
                writer,
                pickle_module,
                pickle_protocol,
                with_byteorder=not _disable_byteorder_record,
                skip_data=_local.skip_data,
                alignment=config.save.storage_alignment,
                materialize=_local.skip_data and _local.materialize_fake_tensors,
            )
            writer.write_end_of_file()
        finally:
            writer._abandon()
        if hasattr(f, "flush"):
            f.flush()
    elif _local.skip_data:
        raise RuntimeError("Cannot use skip_data=True with _use_new_zipfile_serialization=False")
    else:
        save_legacy(obj, f, pickle_module, pickle_protocol)


# ---- load


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **pickle_load_args):
    """Load an object from a file that torch.save wrote, Mica's or torch's.

    Args:
        f: a path, or a file that is open for reading
        map_location: where tensors go: a device, a dict from device to device, or a function of a storage and its location
        pickle_module: unpickles objects, with weights_only=False
        weights_only: True, the default, runs nothing of the file: it may hold tensors, plain values and containers, and
            what add_safe_globals has declared safe. False runs what the file says: use it for files that you trust
        mmap: whether the file is mapped instead of read, so that bytes come from the disk when they are used

    Example::

        torch.save(model.state_dict(), "model.pt")
        model.load_state_dict(torch.load("model.pt", map_location="cpu"))
    """
    weights_only = _resolve_weights_only(weights_only, pickle_module)
    if weights_only and pickle_load_args:
        warnings.warn("pickle_load_args only works if `weights_only=False`.", stacklevel=2)
    pickle_load_args.setdefault("encoding", "utf-8")
    if isinstance(f, (str, os.PathLike)) and os.fspath(f).endswith(".safetensors"):
        return _load_safetensors(os.fspath(f), map_location)
    if mmap is None:
        mmap = config.load.mmap
    if mmap and not isinstance(f, (str, os.PathLike)):
        raise ValueError("f must be a file path in order to use the mmap argument")

    with _opened(f) as opened:
        _check_seekable(opened)
        options = {
            "map_location": map_location,
            "pickle_module": None if weights_only else pickle_module or pickle,
            "pickle_args": pickle_load_args,
            "skip_data": _local.skip_data,
        }
        try:
            if _is_zip(opened):
                archive = _open_archive(opened, f)
                if archive.has_record("constants.pkl"):
                    raise RuntimeError(f"{archive._file} is a TorchScript archive; Mica runs no TorchScript.")
                mapped = None
                if mmap:
                    size = os.path.getsize(f)
                    mapped = _C.UntypedStorage.from_file(os.fspath(f), config.load.mmap_flags == MAP_SHARED, size)
                return load_archive(archive, mapped=mapped, default_byteorder=_default_byteorder(), **options)
            if mmap:
                raise RuntimeError(
                    "mmap can only be used with files saved with `torch.save(_use_new_zipfile_serialization=True), "
                    f"please torch.save {_shown(f)} with it"
                )
            return load_legacy(opened, _shown(f), **options)
        except (pickle.UnpicklingError, RecursionError, MemoryError) as error:
            if not weights_only:
                raise
            raise pickle.UnpicklingError(
                f"Weights only load failed. In {_shown(f)}: WeightsUnpickler error: {error or type(error).__name__}\n{_UNSAFE}"
            ) from None


def _resolve_weights_only(weights_only, pickle_module):
    def asked(name):
        return os.getenv(name, "0").lower() in ("1", "y", "yes", "true")

    force, forbid = asked("TORCH_FORCE_WEIGHTS_ONLY_LOAD"), asked("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    if force and forbid:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but both "
            "were set."
        )
    if force:
        weights_only = True
    elif weights_only is None:
        weights_only = pickle_module is None and not forbid
        if forbid and pickle_module is None:
            warnings.warn(
                "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the `weights_only` argument was "
                "not explicitly passed to `torch.load`, forcing weights_only=False.",
                stacklevel=3,
            )
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    return weights_only


def _opened(f):
    """The file at a path, or one that is open already and stays so."""
    return open(f, "rb") if isinstance(f, (str, os.PathLike)) else contextlib.nullcontext(f)


def _shown(f):
    """What to call the file in an error."""
    if isinstance(f, (str, os.PathLike)):
        return os.fspath(f)
    name = getattr(f, "name", None)
    return name if isinstance(name, str) else f"the {type(f).__name__}"


def _check_seekable(f):
    try:
        f.seek(f.tell())
    except (io.UnsupportedOperation, AttributeError) as error:
        raise type(error)(
            f"{error}. You can only torch.load from a file that is seekable. Please pre-load the data into a buffer like "
            "io.BytesIO and try to load from it instead."
        ) from None


def _is_zip(f):
    begin = f.tell()
    start = f.read(4)
    f.seek(begin)
    return start == b"PK\x03\x04"


def _open_archive(opened, f):
    """The archive in an open file: read past Python where its bytes lie in a file of the system's or in memory."""
    if type(opened) in (io.BufferedReader, io.BufferedRandom, io.FileIO):
        return _C.PyTorchFileReader((opened.fileno(), opened.tell()), _shown(f))
    if type(opened) is io.BytesIO:
        return _C.PyTorchFileReader(opened.getbuffer()[opened.tell() :], _shown(f))
    return _C.PyTorchFileReader(opened, _shown(f))


def _default_byteorder():
    if config.load.endianness is LoadEndianness.NATIVE:
        return sys.byteorder
    return "big" if config.load.endianness is LoadEndianness.BIG else "little"


def _load_safetensors(path, map_location):
    if map_location is not None and not isinstance(map_location, (str, _C.device)):
        raise RuntimeError(
            f"Loading safetensors file with {type(map_location).__name__} map_location is not supported. Use a device "
            "string or torch.device instead."
        )
    from mica._checkpoints.safetensors import load_safetensors

    return load_safetensors(path, map_location or "cpu")


def get_unsafe_globals_in_checkpoint(f):
    """The names in a checkpoint that load would refuse, as add_safe_globals wants them."""
    from mica._checkpoints.unpickler import globals_in_pickle

    with _opened(f) as opened:
        if not _is_zip(opened):
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        names = globals_in_pickle(record_bytes(_open_archive(opened, f), "data.pkl"))
    return sorted(name for name in names if not is_allowed(name))


@contextlib.contextmanager
def _open_file_like(name_or_buffer, mode):
    """A file by its path, which is closed at the end, or one that is open already."""
    if isinstance(name_or_buffer, (str, os.PathLike)):
        with open(name_or_buffer, mode) as opened:
            yield opened
    else:
        yield name_or_buffer
        if "w" in mode and hasattr(name_or_buffer, "flush"):
            name_or_buffer.flush()


@contextlib.contextmanager
def _open_zipfile_reader(name_or_buffer):
    """The records of a checkpoint, by their names."""
    with _opened(name_or_buffer) as opened:
        yield _open_archive(opened, name_or_buffer)


@contextlib.contextmanager
def _open_zipfile_writer(name_or_buffer):
    """A checkpoint that is written record by record, and finished at the end."""
    by_path = isinstance(name_or_buffer, (str, os.PathLike))
    writer = config.file_writer(os.fspath(name_or_buffer) if by_path else name_or_buffer)
    try:
        yield writer
        writer.write_end_of_file()
    finally:
        writer._abandon()
    if hasattr(name_or_buffer, "flush"):
        name_or_buffer.flush()


MAP_LOCATION = object  # an annotation: a function, a device, a name, a dict of names, or None


def _is_zipfile(f):
    return _is_zip(f)
