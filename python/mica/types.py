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

_TensorOrTensors = Union[Tensor, Sequence[Tensor]]  # noqa: UP007
_dtype, _device, _layout, _size = mica.dtype, mica.device, mica.layout, Union[Size, list[int], tuple[int, ...]]  # noqa: UP007
_int, _float, _bool, _complex, _symint = int, float, bool, complex, int
_TensorOrOptionalTensors = Union[Tensor, Sequence[Tensor | None]]  # noqa: UP007
DeviceLikeType = Union[str, mica.device, int]  # noqa: UP007
PySymType = Union[int, float, bool]  # noqa: UP007
_Number, _symsize, _dispatchkey = (bool, int, float), Size, str
py_sym_types = (mica.SymInt, mica.SymFloat, mica.SymBool)
IntLikeType, FloatLikeType, BoolLikeType = int, float, bool

__all__ = ["Device", "FileLike", "Number", "Sequence", "Size", "Storage", "Tensor"]
