"""Plans: which rank writes or reads which pieces. A planner makes them; programs may bring planners of their own."""

import abc
import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar

import mica
from mica.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties

__all__ = [
    "BytesIOWriteData",
    "LoadItemType",
    "LoadPlan",
    "LoadPlanner",
    "ReadItem",
    "SavePlan",
    "SavePlanner",
    "TensorWriteData",
    "WriteItem",
    "WriteItemType",
]


class WriteItemType(Enum):
    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """A piece of a tensor that is to be written."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: mica.Size


@dataclass(frozen=True)
class WriteItem:
    """Something that is to be written."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self):
        """The bytes of the whole tensor, or None if the value is not a tensor."""
        data = self.tensor_data
        return None if data is None else math.prod(data.size) * data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """Something that is to be read: a box of a piece in the checkpoint, and where it goes."""

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: mica.Size
    storage_index: MetadataIndex
    storage_offsets: mica.Size
    lengths: mica.Size


@dataclass(frozen=True)
class SavePlan:
    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True  # False: the plan is the last one, which the receiver still has


@dataclass
class LoadPlan:
    items: list[ReadItem]
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(abc.ABC):
    """Plans what is written: every rank says what it has, one rank decides, every rank then gives the data."""

    # The last plans, by the name of the planner's class.
    _cached_save_plan: ClassVar[dict] = {}
    _cached_final_save_plan: ClassVar[dict] = {}
    _cached_all_plans: ClassVar[dict] = {}
    _cached_global_plan: ClassVar[dict] = {}
    _cached_metadata: ClassVar[dict] = {}

    @abc.abstractmethod
    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        """Called first, on all ranks, with the dictionary to save."""

    @abc.abstractmethod
    def create_local_plan(self):
        """What this rank has. Called on all ranks."""

    @abc.abstractmethod
    def create_global_plan(self, all_plans):
        """What each rank is to write, and the metadata. Called on one rank."""

    @abc.abstractmethod
    def finish_plan(self, new_plan):
        """Take what was decided for this rank. Called on all ranks."""

    @abc.abstractmethod
    def resolve_data(self, write_item):
        """The tensor, or the bytes as io.BytesIO, of an item. Threads may call it, more than once."""


class LoadPlanner(abc.ABC):
    """Plans what is read: into which tensors, from which pieces."""

    @abc.abstractmethod
    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        """Called first, on all ranks, with the dictionary to load into."""

    @abc.abstractmethod
    def create_local_plan(self):
        """What this rank needs. Called on all ranks."""

    @abc.abstractmethod
    def create_global_plan(self, global_plan):
        """What each rank is to read. Called on one rank."""

    @abc.abstractmethod
    def finish_plan(self, central_plan):
        """Take what was decided for this rank. Called on all ranks."""

    @abc.abstractmethod
    def load_bytes(self, read_item, value):
        """Load a value that is not a tensor, from an io.BytesIO."""

    def resolve_bytes(self, read_item):
        """The io.BytesIO that is to be filled, where a storage fills it rather than handing it over."""
        raise NotImplementedError("LoadPlanner.resolve_bytes is not implemented")

    @abc.abstractmethod
    def resolve_tensor(self, read_item):
        """The tensor that is to be filled."""

    @abc.abstractmethod
    def commit_tensor(self, read_item, tensor):
        """The tensor of resolve_tensor has been filled."""
