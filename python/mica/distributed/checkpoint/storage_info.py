"""Where a piece lies in the files of a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class _StorageInfo:
    """A part of a file."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Sequence[str] | None = None

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass
class _StoragePrefix:
    """The beginning of the names of a rank's files."""

    prefix: str


# Files name these classes by torch's module.
for _kind in (_StorageInfo, _StoragePrefix):
    _kind.__module__ = "mica.distributed.checkpoint.filesystem"
