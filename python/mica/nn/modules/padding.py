"""Layers that widen their input at its borders."""

from mica._C import Tensor
from mica._generated import modules as options

from .. import functional as F

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _PadNd(options._PadNd):
    """Pads the last `_dims` dimensions by numbers given for both ends of each, the last dimension first."""

    _dims = 0
    _mode = "constant"

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def _check_input_dim(self, input):
        dims = self._dims + 1
        if input.dim() not in (dims, dims + 1):
            raise ValueError(f"expected {dims}D or {dims + 1}D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return F.pad(input, self.padding, self._mode)


class CircularPad1d(_CircularPadNd):
    """Continues sequences from their other end."""

    padding: tuple[int, int]

    _dims = 1


class CircularPad2d(_CircularPadNd):
    """Continues images from their other side."""

    padding: tuple[int, int, int, int]

    _dims = 2


class CircularPad3d(_CircularPadNd):
    """Continues volumes from their other side."""

    padding: tuple[int, int, int, int, int, int]

    _dims = 3


class _ConstantPadNd(options._ConstantPadNd):
    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)


class ConstantPad1d(_ConstantPadNd):
    """Continues sequences with a constant."""

    padding: tuple[int, int]

    _dims = 1


class ConstantPad2d(_ConstantPadNd):
    """Continues images with a constant."""

    padding: tuple[int, int, int, int]

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Continues volumes with a constant."""

    padding: tuple[int, int, int, int, int, int]

    _dims = 3


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Continues sequences by their reflection at the ends."""

    padding: tuple[int, int]

    _dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Continues images by their reflection at the borders."""

    padding: tuple[int, int, int, int]

    _dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Continues volumes by their reflection at the borders."""

    padding: tuple[int, int, int, int, int, int]

    _dims = 3


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Continues sequences by their last element."""

    padding: tuple[int, int]

    _dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Continues images by their outermost elements."""

    padding: tuple[int, int, int, int]

    _dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Continues volumes by their outermost elements."""

    padding: tuple[int, int, int, int, int, int]

    _dims = 3


class ZeroPad1d(ConstantPad1d):
    """Continues sequences with zeros."""

    padding: tuple[int, int]

    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Continues images with zeros."""

    padding: tuple[int, int, int, int]

    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Continues volumes with zeros."""

    padding: tuple[int, int, int, int, int, int]

    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"
