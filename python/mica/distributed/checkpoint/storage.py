"""What a storage of checkpoints does: it writes the pieces of a plan, and reads them."""

import abc
from dataclasses import dataclass
from typing import Any

from mica.distributed.checkpoint.metadata import MetadataIndex

__all__ = ["StorageReader", "StorageWriter", "WriteResult"]


@dataclass(frozen=True)
class WriteResult:
    """Where a piece was written."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(abc.ABC):
    """Writes checkpoints. Called in this order; one rank is the coordinator."""

    @abc.abstractmethod
    def reset(self, checkpoint_id=None):
        """A new checkpoint begins."""

    @abc.abstractmethod
    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        """Whether this is the coordinator. On all ranks."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan):
        """The plan of this rank, with what the storage has to add. On all ranks."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans):
        """The plans of all ranks, with what the storage has to add. On the coordinator."""

    @abc.abstractmethod
    def write_data(self, plan, planner):
        """Write the pieces that planner.resolve_data gives. Returns a future of a list of WriteResult. On all ranks."""

    @abc.abstractmethod
    def finish(self, metadata, results):
        """Write the metadata: the checkpoint is valid from now on. On the coordinator."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        """Whether this storage can have a checkpoint of that name."""

    def storage_meta(self):
        """What the storage says of itself in the metadata."""
        return None


class StorageReader(abc.ABC):
    """Reads checkpoints. Called in this order; one rank is the coordinator."""

    @abc.abstractmethod
    def reset(self, checkpoint_id=None):
        """Another checkpoint is to be read."""

    @abc.abstractmethod
    def read_metadata(self, *args, **kwargs):
        """The metadata of the checkpoint. On all ranks."""

    @abc.abstractmethod
    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        """The metadata, and whether this is the coordinator. On all ranks."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan):
        """The plan of this rank, with what the storage has to add. On all ranks."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans):
        """The plans of all ranks, with what the storage has to add. On the coordinator."""

    @abc.abstractmethod
    def read_data(self, plan, planner):
        """Read the pieces into what planner.resolve_tensor gives. Returns a future. On all ranks."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        """Whether this storage can have a checkpoint of that name."""
