"""What a recorded program asks of data: which calls do, and how they are refused or answered by another run."""

import mica
from mica import _C
from mica._subclasses import of_data
from mica.fx.experimental._size_contexts import GuardOnDataDependentSymNode
from mica.utils._pytree import tree_leaves, tree_map_only

__all__ = [
    "DataDependentError",
    "NeedsData",
    "SizeOfData",
    "UnseenError",
    "has_open_float",
    "has_sizes_of_data",
    "refused_value",
    "tensors_in",
    "with_numbers",
]

SIZES = {"shape", "size", "numel", "nelement", "__len__", "stride"}
_SIZED_BY_DATA = {"unique", "_unique2", "unique_dim", *of_data.NAMES}


class DataDependentError(GuardOnDataDependentSymNode):
    """A program asks for a value that only its inputs decide."""

    def __init__(self, text):
        super().__init__(None, text)


def refused_value(name):
    """The error of a program that calls a tensor's method for a value, in torch's words."""
    expr = {"__int__": "u0", "__index__": "u0", "__float__": "zuf0", "__complex__": "zuf0"}.get(name, "Eq(u0, 1)")
    what = "extract specialized integer from" if expr == "u0" else "guard on"
    return DataDependentError(
        f"Could not {what} data-dependent expression {expr} (unhinted: {expr}).  (Size-like symbols: none)\n\nThe program "
        f"calls {name}() on a tensor that depends on its inputs, and an exported graph cannot follow the value. torch.where "
        "or torch.cond says it within the graph"
    )


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


# Functions whose arguments are sizes and numbers, and those of which that is so of all arguments but the first. The engine
# takes the number of a tensor there without a word.
_OF_NUMBERS = frozenset(["zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "range", "linspace",
                         "logspace", "eye"])  # fmt: skip
_OF_SIZES = frozenset(["view", "reshape", "expand", "broadcast_to", "repeat", "tile", "narrow", "roll", "chunk", "topk", "pad",
                       "new_zeros", "new_ones", "new_empty", "new_full", "unflatten"])  # fmt: skip


def with_numbers(name, args, kwargs, is_open):
    """The arguments of a call with numbers for tensors that stand for sizes, if some of these are open; None of others."""
    first = 0 if name in _OF_NUMBERS else 1
    if name not in _OF_NUMBERS and name not in _OF_SIZES:
        return None
    tensors = {key: each for key, each in kwargs.items() if key in ("input", "self", "out")}
    numbers = {key: each for key, each in kwargs.items() if key not in tensors}
    if not any(map(is_open, tensors_in((args[first:], numbers)))):
        return None

    def number(tensor):
        return tensor.item() if is_open(tensor) and tensor.numel() == 1 else tensor

    rest, named = tree_map_only(_C.TensorBase, number, (tuple(args[first:]), numbers))
    return (*args[:first], *rest), tensors | named


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
