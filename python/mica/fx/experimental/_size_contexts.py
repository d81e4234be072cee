"""How sizes of inputs become symbols, and the errors of programs that ask for more than is known of sizes."""

import enum
import os
import traceback
from typing import Any, NamedTuple

import mica

__all__ = [
    "Constraint", "ConstraintViolationError", "DimDynamic", "GuardOnDataDependentSymNode", "ShapeGuard",
    "StatefulSymbolicContext", "StatelessSymbolicContext", "SymbolicContext", "unanswerable",
]  # fmt: skip


class GuardOnDataDependentSymNode(RuntimeError):
    """A question about a size that only data decide."""

    def __init__(self, cond, *args):
        super().__init__(*args)
        self.cond = cond


class ConstraintViolationError(RuntimeError):
    """Raised when the program fixes a size that was declared open."""


class DimDynamic(enum.Enum):
    """What is open about a size."""

    DYNAMIC, DUCK, STATIC, SIZE_LIKE_UNBACKED, UNBACKED, INFER_STRIDE, OBLIVIOUS_SIZE = range(7)


class Constraint:
    """What a program's writer says of a size."""


class SymbolicContext:
    """How the sizes of one input become symbols."""


class StatelessSymbolicContext(SymbolicContext):
    """For every dimension of an input, whether it is open, and the constraints on it."""

    def __init__(self, dynamic_sizes=(), dynamic_strides=(), constraint_sizes=(), constraint_strides=(), **options):
        self.dynamic_sizes, self.constraint_sizes = list(dynamic_sizes), list(constraint_sizes)
        self.dynamic_strides, self.constraint_strides = list(dynamic_strides), list(constraint_strides)


class StatefulSymbolicContext(StatelessSymbolicContext):
    """A StatelessSymbolicContext that is remembered for a tensor."""

    def __init__(self, *args, tensor_source=None, **options):
        super().__init__(*args, **options)
        self.tensor_source = tensor_source


class ShapeGuard(NamedTuple):
    """A truth that a graph relies on."""

    expr: Any
    stack: Any = None
    size_oblivious: bool = False


def unanswerable(expr, env, is_question=True):
    """The error, in torch's words, of a program that asks for what only data decide."""
    likes = ", ".join(sorted(expr.free_symbols & env.size_like)) or "none"
    what = "guard on" if is_question else "extract specialized integer from"
    way_out = (
        "consider using data-dependent friendly APIs such as guard_or_false, guard_or_true and statically_known_true."
    )
    return GuardOnDataDependentSymNode(
        expr,
        f"Could not {what} data-dependent expression {expr} (unhinted: {expr}).  (Size-like symbols: {likes})\n\n"
        f"{way_out if is_question else ''}\nCaused by: {_line_of_program(traceback.extract_stack(limit=40))}",
    )


def _line_of_program(stack):
    """(file:line in function) of the innermost line that is none of Mica's own."""
    own = os.path.dirname(mica.__file__)
    for frame in reversed(stack):
        if not frame.filename.startswith((own, "<")) and not os.path.realpath(frame.filename).startswith(
            os.path.realpath(own)
        ):
            return f"({frame.filename}:{frame.lineno} in {frame.name})"
    return "(unknown)"
