"""Refuses, with the line, what `fullgraph=True` does not allow: values that torch's tracing could not hand to Python either."""

import dis
import functools
import linecache
import os
import sys

from mica.compiler import _running

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

# Torch's words for the request, then the way out.
_REASONS = {
    "__bool__": (
        "Data-dependent branching",
        "the branch depends on the value of a tensor; torch.where and torch.cond compute without one",
    ),
    "__repr__": ("Failed to trace builtin operator", "the text of a tensor needs its values"),
    "Tensor.tolist": ("Tensor.tolist() with non-integer tensor", "the list needs the tensor's values"),
    "torch.equal": ("Data dependent operator", "torch.equal gives a Python bool; (a == b).all() gives a tensor"),
    "torch.allclose": (
        "Data dependent operator",
        "torch.allclose gives a Python bool; torch.isclose(a, b).all() gives a tensor",
    ),
    "torch.nn.functional.one_hot": (
        "Attempted to use `torch.nn.functional.one_hot` with data-dependent output shape",
        "give num_classes",
    ),
    "graph_break": ("Call to `torch._dynamo.graph_break()`", "it asks for what was put off"),
    "disable": (
        "Skip calling `torch.compiler.disable()`d function",
        "a part that is not compiled needs the values of what was put off",
    ),
}


def is_ours(frame):
    """Whether a frame is of this package: what torch does in C++ may be Python here."""
    return frame.f_code.co_filename.startswith(_PACKAGE)


def _users_frame(frame):
    while frame is not None and is_ours(frame):
        frame = frame.f_back
    return frame


@functools.lru_cache(1024)
def _instructions(code):
    found = list(dis.get_instructions(code))
    return found, {each.offset: i for i, each in enumerate(found)}


def instruction(frame, ahead=0):
    """The instruction that a frame runs, or one after it."""
    found, index = _instructions(frame.f_code)
    at = index.get(frame.f_lasti)
    return found[at + ahead] if at is not None and 0 <= at + ahead < len(found) else None


def branches(frame):
    """Whether a frame asks for a truth value in order to branch. As in torch, an assertion does not count as a branch."""
    return _use_of_truth(frame) == "branch"


def asserts(frame):
    """Whether a frame asks for a truth value that it asserts."""
    return _use_of_truth(frame) == "assertion"


def _use_of_truth(frame):
    for ahead in range(3):
        here = instruction(frame, ahead)
        if here is None:
            return None
        if here.opname in ("UNARY_NOT", "FOR_ITER"):  # FOR_ITER asks for the next item of a filter
            return "branch"
        if "JUMP" in here.opname and "IF" in here.opname:
            after = instruction(frame, ahead + 1)
            is_assertion = after is not None and (
                after.opname == "LOAD_ASSERTION_ERROR" or "AssertionError" in after.argrepr
            )
            return "assertion" if is_assertion else "branch"
        if here.opname not in ("TO_BOOL", "CACHE", "COPY", "COMPARE_OP"):
            return None
    return None


def _within_operator(frame):
    """Whether a frame is within an operator of the program's own: nobody looks into these functions."""
    from mica._library.operator import Operator

    while frame is not None and frame.f_code is not Operator.__call__.__code__:
        frame = frame.f_back
    return frame is not None


def refuse(what):
    """Raise for a value that is asked for where the whole function is to be compiled, unless torch could go on."""
    frame = sys._getframe(1)
    if _running.is_opaque(frame) or _within_operator(frame):
        return
    if what in ("graph_break", "disable"):
        frame = _users_frame(frame)
    elif is_ours(frame):
        return
    if what == "__bool__" and not branches(frame):
        return
    if what == "__repr__" and (here := instruction(frame)) is not None and here.opname.startswith("FORMAT_"):
        return
    from mica._dynamo.exc import Unsupported

    torchs, ours = _REASONS[what]
    raise Unsupported(f"{torchs}\n  with fullgraph=True nothing may ask for values: {ours}\n  {_place_of(frame)}")


def _place_of(frame):
    if frame is None:
        return ""
    code, line = frame.f_code, frame.f_lineno
    text = linecache.getline(code.co_filename, line or 0, frame.f_globals).strip()
    name = getattr(code, "co_qualname", code.co_name)
    return f"line {line} of {os.path.basename(code.co_filename)}, in {name}" + (f": `{text}`" if text else "")


def place():
    """The program's line that runs, with its text."""
    return _place_of(_users_frame(sys._getframe(0)))
