"""Types for annotations, by torch's names."""

import os
from collections.abc import Sequence
from typing import IO, Union

import mica
from mica import Size, Tensor

Device = mica.device | str | int | None
Number = int | float | bool
FileLike = Union[str, os.PathLike[str], IO[bytes]]  # noqa: UP007
Storage = mica.UntypedStorage

__all__ = ["Device", "FileLike", "Number", "Sequence", "Size", "Storage", "Tensor"]
