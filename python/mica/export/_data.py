"""What a recorded program asks of data: which calls do, and how they are refused or answered by another run."""

import mica
from mica import _C
from mica._subclasses import of_data
from mica.utils._pytree import tree_leaves

__all__ = [
    "DataDependentError",
    "NeedsData",
    "SizeOfData",
    "UnseenError",
    "has_open_float",
    "has_sizes_of_data",
    "tensors_in",
]

SIZES = {"shape", "size", "numel", "nelement", "__len__", "stride"}
_SIZED_BY_DATA = {"unique", "_unique2", "unique_dim", *of_data.NAMES}


class DataDependentError(RuntimeError):
    """A program asks for a value that only its inputs decide."""


class UnseenError(RuntimeError):
    """A program uses a tensor that was made by a call which the recorder does not see."""


class NeedsData(Exception):
    """A size or a number follows from the inputs' data: the program is to be run on fake tensors."""


class SizeOfData(Exception):
    """The program asks for a size that only data decide, where the run is on the example."""


def has_sizes_of_data(name, args):
    """Whether the sizes of a call's result only data decide."""
    if name in ("__getitem__", "index"):
        places = args[1] if isinstance(args[1], (list, tuple)) else (args[1],)
        return any(each.dtype in (mica.bool, mica.uint8) and each.dim() for each in tensors_in(places))
    if name == "repeat_interleave":
        return len(tensors_in(args)) > 1 or len(args) == 1
    return name in _SIZED_BY_DATA or (name == "where" and len(args) == 1)


def has_open_float(values):
    return any(isinstance(leaf, mica.SymFloat) for leaf in tree_leaves(values))


def tensors_in(values):
    found = []
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, _C.TensorBase):
            found.append(value)
        elif isinstance(value, (list, tuple, dict)):
            found += tensors_in(value)
    return found
