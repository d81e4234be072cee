"""torch.ops.profiler: ranges of a program that are opened and closed by a handle. `record_function` is the same as a block."""

import mica
from mica.autograd.profiler import record_function


def find(name):
    """The function of an operator; None if there is none."""
    return {"_record_function_enter": _enter, "_record_function_exit": _exit}.get(name)


def _enter(name, args=None):
    handle = mica.Tensor()
    handle._open_range = record_function(name, args).__enter__()
    return handle


def _exit(handle):
    opened = vars(handle).pop("_open_range", None)
    if opened is None:
        raise RuntimeError("profiler::_record_function_exit: the tensor is the handle of no range that is open")
    opened.__exit__(None, None, None)
