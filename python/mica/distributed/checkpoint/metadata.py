"""What a checkpoint says of itself: which tensors it holds, in which pieces, and where the pieces lie."""

import os
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import mica
from mica.distributed.checkpoint.stateful import StatefulT

__all__ = [
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "Metadata",
    "MetadataIndex",
    "StorageMeta",
    "TensorProperties",
    "TensorStorageMetadata",
]


@dataclass
class ChunkStorageMetadata:
    """A piece of a tensor: a box within it."""

    offsets: mica.Size
    sizes: mica.Size


class _MEM_FORMAT_ENCODING(Enum):
    """Memory formats as files name them."""

    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


def _formats():
    names = _MEM_FORMAT_ENCODING
    return (
        (mica.contiguous_format, names.TORCH_CONTIGUOUS_FORMAT),
        (mica.channels_last, names.TORCH_CHANNELS_LAST),
        (mica.preserve_format, names.TORCH_PRESERVE_FORMAT),
    )


@dataclass
class TensorProperties:
    """Further properties with which a tensor is made."""

    dtype: mica.dtype = field(default_factory=mica.get_default_dtype)
    layout: mica.layout = field(default=mica.strided)
    requires_grad: bool = False
    memory_format: mica.memory_format = field(default=mica.contiguous_format)
    pin_memory: bool = False

    def __getstate__(self):
        for memory_format, encoded in _formats():
            if memory_format == self.memory_format:
                return self.dtype, self.layout, self.requires_grad, encoded, self.pin_memory
        raise RuntimeError(f"Invalid torch.memory_format: {self.memory_format}")

    def __setstate__(self, state):
        self.dtype, self.layout, self.requires_grad, encoding, self.pin_memory = state
        for memory_format, encoded in _formats():
            if encoded == encoding:
                self.memory_format = memory_format
                return
        raise RuntimeError(f"Invalid torch.memory_format encoding: {encoding}")

    @staticmethod
    def create_from_tensor(tensor):
        return TensorProperties(
            tensor.dtype, tensor.layout, tensor.requires_grad, mica.contiguous_format, tensor.is_pinned()
        )


@dataclass
class TensorStorageMetadata:
    """A tensor, and the pieces in which it was saved."""

    properties: TensorProperties
    size: mica.Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """A value that is not a tensor."""


STORAGE_TYPES = TensorStorageMetadata | BytesStorageMetadata
STATE_DICT_TYPE = dict[str, StatefulT | Any]


@dataclass
class StorageMeta:
    """The facts that a storage records about itself."""

    checkpoint_id: str | os.PathLike | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """The contents of a checkpoint."""

    state_dict_metadata: dict[str, STORAGE_TYPES]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    """Names a value, or a piece of a tensor. The index says where to look for the piece first."""

    fqn: str
    offset: mica.Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(self, fqn, offset=None, index=None):
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        if offset is not None:
            object.__setattr__(self, "offset", mica.Size(offset))
