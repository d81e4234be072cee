"""The file .metadata: a pickle in torch's names, which is read without running anything that it names."""

import io
import os
import pathlib
import pickle

from mica._checkpoints.unpickler import Unpickler
from mica._checkpoints.writer import _pickled
from mica.distributed.checkpoint import metadata as _metadata
from mica.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex, TensorStorageMetadata
from mica.distributed.checkpoint.storage_info import _StorageInfo, _StoragePrefix

_HOME = "torch.distributed.checkpoint"
_OLD_HOME = "torch.distributed._shard.sharded_tensor.metadata"  # in files of torch 2.2 and earlier
_CLASSES = {
    **{f"{_HOME}.metadata.{name}": getattr(_metadata, name) for name in _metadata.__all__},
    f"{_HOME}.metadata._MEM_FORMAT_ENCODING": _metadata._MEM_FORMAT_ENCODING,
    f"{_OLD_HOME}.TensorProperties": _metadata.TensorProperties,
    f"{_OLD_HOME}.MEM_FORMAT_ENCODING": _metadata._MEM_FORMAT_ENCODING,
    f"{_HOME}.filesystem._StorageInfo": _StorageInfo,
    f"{_HOME}.filesystem._StoragePrefix": _StoragePrefix,
    **{
        f"{module}.{name}": kind
        for module in ("pathlib", "pathlib._local")
        for name, kind in (
            ("PosixPath", pathlib.PurePosixPath),
            ("PurePosixPath", pathlib.PurePosixPath),
            ("WindowsPath", pathlib.PureWindowsPath),
            ("PureWindowsPath", pathlib.PureWindowsPath),
        )
    },
}


def write(metadata):
    """The bytes of the file."""

    def refuse(storage):
        raise TypeError("the metadata of a checkpoint cannot hold tensors")

    return _pickled(metadata, pickle, 2, refuse)


def read(data, shown):
    """The metadata in a file's bytes."""
    unpickler = Unpickler(io.BytesIO(data))
    unpickler._user = {**unpickler._user, **_CLASSES}
    try:
        metadata = unpickler.load()
        _check(metadata)
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise pickle.UnpicklingError(
            f"{shown} cannot be read as the metadata of a checkpoint: {error or type(error).__name__}"
        ) from None
    return metadata


def _check(metadata):
    """Refuse metadata that do not have the form that the reader relies on, or that name files outside of the folder."""
    if type(metadata) is not Metadata or not isinstance(metadata.state_dict_metadata, dict):
        raise ValueError("it holds something else")
    for value in metadata.state_dict_metadata.values():
        if type(value) is TensorStorageMetadata:
            rank = len(value.size)
            if any(len(chunk.offsets) != rank or len(chunk.sizes) != rank for chunk in value.chunks):
                raise ValueError("a piece has other dimensions than its tensor")
        elif type(value) is not BytesStorageMetadata:
            raise ValueError(f"it describes a value by {type(value).__name__}")
    for index, info in (metadata.storage_data or {}).items():
        if type(info) is not _StorageInfo:
            continue
        path = info.relative_path
        if type(index) is not MetadataIndex or os.path.isabs(path) or ".." in pathlib.PurePath(path).parts:
            raise ValueError(f"{path!r} is no file of its folder")
        if not (isinstance(info.offset, int) and isinstance(info.length, int) and min(info.offset, info.length) >= 0):
            raise ValueError(f"a piece of {path!r} has no place in it")
