"""Checkpoints in a folder: `.metadata`, and for each rank files `__<rank>_<n>.distcp` of its pieces."""

import dataclasses
import io
import math
import os
import uuid
import warnings
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

import mica
from mica.distributed.checkpoint import _metadata_file
from mica.distributed.checkpoint.metadata import StorageMeta
from mica.distributed.checkpoint.planner import LoadItemType, WriteItemType
from mica.distributed.checkpoint.staging import BlockingAsyncStager
from mica.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from mica.distributed.checkpoint.storage_info import _StorageInfo, _StoragePrefix
from mica.distributed.checkpoint.utils import narrow_tensor_by_index
from mica.futures import Future

__all__ = ["FileSystem", "FileSystemBase", "FileSystemReader", "FileSystemWriter", "SerializationFormat"]

_metadata_fn = ".metadata"
CURRENT_DCP_VERSION = "1.0.0"
DEFAULT_SUFFIX = ".distcp"


class SerializationFormat(Enum):
    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


class FileSystemBase(ABC):
    """The place of files: the disk, or a file system of the program's own."""

    @contextmanager
    @abstractmethod
    def create_stream(self, path, mode): ...

    @abstractmethod
    def concat_path(self, path, suffix): ...

    @abstractmethod
    def rename(self, path, new_path): ...

    @abstractmethod
    def init_path(self, path): ...

    @abstractmethod
    def mkdir(self, path): ...

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id): ...

    @abstractmethod
    def exists(self, path): ...

    @abstractmethod
    def rm_file(self, path): ...


class FileSystem(FileSystemBase):
    """The disk."""

    @contextmanager
    def create_stream(self, path, mode):
        with Path(path).open(mode) as stream:
            yield stream

    def concat_path(self, path, suffix):
        return Path(path) / suffix

    def init_path(self, path):
        return Path(path)

    def rename(self, path, new_path):
        os.replace(path, new_path)

    def mkdir(self, path):
        Path(path).mkdir(parents=True, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        if isinstance(checkpoint_id, Path):
            return True
        text = str(checkpoint_id)
        if "://" in text:
            return False
        # The nearest folder that exists must be writable.
        folder = Path(text)
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return os.access(folder, os.W_OK)

    def exists(self, path):
        return Path(path).exists()

    def rm_file(self, path):
        Path(path).unlink()

    def ls(self, path):
        return [str(each) for each in Path(path).iterdir()]


def _done(value):
    future = Future()
    future.set_result(value)
    return future


def _size(item):
    return math.prod(item.tensor_data.chunk.sizes) * item.tensor_data.properties.dtype.itemsize


def _split_by_size_and_type(bins, items):
    """The items in so many files of about the same size."""
    if bins == 1:
        return [items]
    files, sizes = [[] for _ in range(bins)], [0] * bins
    for place, item in enumerate(item for item in items if item.type == WriteItemType.BYTE_IO):
        files[place % bins].append(item)
    for item in sorted((item for item in items if item.type != WriteItemType.BYTE_IO), key=_size, reverse=True):
        smallest = sizes.index(min(sizes))
        files[smallest].append(item)
        sizes[smallest] += _size(item)
    return files


def _on_disk(stream):
    """Wait until what was written is on the disk."""
    stream.flush()
    try:
        os.fsync(stream.fileno())
    except (AttributeError, io.UnsupportedOperation):
        os.sync()


def _minimal(tensor):
    """The tensor on the CPU, with a storage that has no other elements, so that a file gets no more bytes than needed."""
    tensor = tensor.detach().cpu()
    return tensor if tensor.untyped_storage().size() == tensor.nbytes else tensor.clone()


class _FileSystemWriter(StorageWriter):
    """Writes the pieces of each rank to files of its own."""

    def __init__(
        self,
        path,
        single_file_per_rank=True,
        sync_files=True,
        thread_count=1,
        per_thread_copy_ahead=10_000_000,
        overwrite=True,
        _extensions=None,
        serialization_format=SerializationFormat.TORCH_SAVE,
        *args,
        **kwargs,
    ):
        if _extensions:
            raise NotImplementedError("FileSystemWriter: transformed streams are not in Mica")
        if serialization_format != SerializationFormat.TORCH_SAVE:
            raise NotImplementedError("FileSystemWriter: checkpoints of safetensors files are not in Mica yet")
        self.fs = FileSystem()
        self.path = self.fs.init_path(path)
        self.single_file_per_rank, self.sync_files, self.thread_count = single_file_per_rank, sync_files, thread_count
        self.per_thread_copy_ahead, self.overwrite = per_thread_copy_ahead, overwrite
        self.save_id = str(uuid.uuid4())
        self.is_coordinator, self.rank, self.use_collectives = False, None, True

    def reset(self, checkpoint_id=None):
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.save_id = str(uuid.uuid4())

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        self.is_coordinator = is_coordinator
        self.rank, self.use_collectives = kwargs.get("rank"), kwargs.get("use_collectives", True)

    def prepare_local_plan(self, plan):
        self.fs.mkdir(self.path)
        if self.fs.exists(self._get_metadata_path(self._own_rank())):
            if not self.overwrite:
                raise RuntimeError(f"Checkpoint already exists and self.overwrite={self.overwrite!r}.")
            warnings.warn(
                f"Detected an existing checkpoint in {self.path}, overwriting since self.overwrite={self.overwrite!r}. Past "
                "version 2.5 of PyTorch, `overwrite` will default to False. Set this variable to True to maintain this "
                "functionality or False to raise when an existing checkpoint is found.",
                stacklevel=2,
            )
        if self._own_rank() is not None:
            plan = dataclasses.replace(plan, storage_data=_StoragePrefix(f"__{self.rank}_"))
        return plan

    def prepare_global_plan(self, plans):
        # An old checkpoint ends before its files are overwritten: a process that dies then leaves no checkpoint,
        # instead of a mixture.
        if self.fs.exists(present := self._get_metadata_path(self._own_rank())):
            self.fs.rm_file(present)
        return [
            dataclasses.replace(plan, storage_data=_StoragePrefix(f"__{rank}_")) if plan.storage_data is None else plan
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan, planner):
        if self.single_file_per_rank:
            buckets = _split_by_size_and_type(self.thread_count, plan.items)
        else:
            buckets = [[item] for item in plan.items]
        names = [f"{plan.storage_data.prefix}{place}{DEFAULT_SUFFIX}" for place in range(len(buckets))]
        if self.thread_count == 1:
            written = [self._write_file(planner, name, items) for name, items in zip(names, buckets, strict=True)]
        else:
            with ThreadPoolExecutor(self.thread_count) as threads:
                written = list(threads.map(lambda name, items: self._write_file(planner, name, items), names, buckets))
        return _done([result for results in written for result in results])

    def _write_file(self, planner, name, items):
        """One file of pieces: values first, then tensors, each an archive of its own."""
        results = []
        with self.fs.create_stream(self.fs.concat_path(self.path, name), "wb") as stream:
            for item in sorted(items, key=lambda item: item.type != WriteItemType.BYTE_IO):
                begin, data = stream.tell(), planner.resolve_data(item)
                if item.type == WriteItemType.BYTE_IO:
                    stream.write(data.getbuffer())
                else:
                    mica.save(_minimal(data), stream)
                length = stream.tell() - begin
                results.append(WriteResult(item.index, length, _StorageInfo(name, begin, length)))
            if self.sync_files:
                _on_disk(stream)
        return results

    def finish(self, metadata, results):
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = {each.index: each.storage_data for written in results for each in written}
        metadata.storage_meta = self.storage_meta()
        target = self._get_metadata_path(self._own_rank())
        # Renamed into place, so that it is there completely or not at all. Without it there is no checkpoint.
        draft = self.fs.concat_path(self.path, f"{os.path.basename(target)}.tmp")
        with self.fs.create_stream(draft, "wb") as stream:
            stream.write(_metadata_file.write(metadata))
            if self.sync_files:
                _on_disk(stream)
        self.fs.rename(draft, target)

    def storage_meta(self):
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self.save_id)

    def _own_rank(self):
        """The rank, where ranks save without asking each other."""
        return None if self.use_collectives else self.rank

    def _get_metadata_path(self, rank=None):
        return self.fs.concat_path(self.path, _metadata_fn if rank is None else f"__{rank}{_metadata_fn}")

    @property
    def checkpoint_id(self):
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return FileSystem.validate_checkpoint_id(checkpoint_id)


class FileSystemWriter(_FileSystemWriter, BlockingAsyncStager):
    """Writes checkpoints to a folder, in torch's own format."""

    def __init__(
        self,
        path,
        single_file_per_rank=True,
        sync_files=True,
        thread_count=1,
        per_thread_copy_ahead=10_000_000,
        cache_staged_state_dict=False,
        overwrite=True,
        _extensions=None,
        serialization_format=SerializationFormat.TORCH_SAVE,
    ):
        _FileSystemWriter.__init__(
            self, path, single_file_per_rank, sync_files, thread_count, per_thread_copy_ahead, overwrite, _extensions,
            serialization_format,
        )  # fmt: skip
        BlockingAsyncStager.__init__(self, cache_staged_state_dict=cache_staged_state_dict)


class FileSystemReader(StorageReader):
    """Reads checkpoints from a folder that torch or Mica has written."""

    def __init__(self, path, _extension_registry=None):
        self.fs = FileSystem()
        self.path = self.fs.init_path(path)
        self.storage_data, self.load_id = {}, str(uuid.uuid4())
        self.rank, self.use_collectives = None, True

    def reset(self, checkpoint_id=None):
        self.storage_data = {}
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.load_id = str(uuid.uuid4())

    def read_data(self, plan, planner):
        by_file = {}
        for item in plan.items:
            info = self.storage_data[item.storage_index]
            if info.transform_descriptors:
                raise NotImplementedError(
                    f"{self.path} was written through {info.transform_descriptors}, which is not in Mica"
                )
            by_file.setdefault(info.relative_path, []).append((info.offset, info.length, item))
        for name, places in by_file.items():
            with self.fs.create_stream(self.fs.concat_path(self.path, name), "rb") as stream:
                self._read_file(stream, places, planner)
        return _done(None)

    def _read_file(self, stream, places, planner):
        """Read items from one file in the order in which they lie there; a piece that several want is read once."""
        last, piece = None, None
        for offset, length, item in sorted(places, key=lambda place: place[0]):
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(_part(stream, offset, length)))
                continue
            if offset != last:
                last = offset
                piece = mica.load(io.BytesIO(_part(stream, offset, length)), map_location="cpu", weights_only=True)
            source = narrow_tensor_by_index(piece, item.storage_offsets, item.lengths)
            target = planner.resolve_tensor(item).detach()
            if target.size() != source.size():
                raise AssertionError(f"req {item.storage_index} mismatch sizes {target.size()} vs {source.size()}")
            target.copy_(source)
            planner.commit_tensor(item, target)

    def _get_metadata_path(self, rank=None):
        return self.fs.concat_path(self.path, _metadata_fn if rank is None else f"__{rank}{_metadata_fn}")

    def read_metadata(self, *args, **kwargs):
        path = self._get_metadata_path(kwargs.get("rank"))
        with self.fs.create_stream(path, "rb") as stream:
            metadata = _metadata_file.read(stream.read(), path)
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        self.storage_data = metadata.storage_data
        self.rank, self.use_collectives = kwargs.get("rank"), kwargs.get("use_collectives", True)
        assert self.storage_data is not None, "storage_data must not be None in metadata"

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    @property
    def checkpoint_id(self):
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return FileSystem.validate_checkpoint_id(checkpoint_id)


def _part(stream, offset, length):
    """Bytes of a file. A file that is shorter than the metadata says is damaged."""
    stream.seek(offset)
    data = stream.read(length)
    if len(data) != length:
        name = getattr(stream, "name", "a file")
        raise RuntimeError(f"{name} is truncated: {length} bytes are asked for at {offset}, and {len(data)} are there")
    return data
