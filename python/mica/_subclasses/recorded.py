"""Gradients by tensors of classes with a __torch_dispatch__: autograd records the operators that their classes are asked for.

While a call is recorded, a mode stands below autograd: the engine runs the called function, hands each of its operators
to the mode, which asks the class, and puts the operator's node around the answer. A backward pass that comes to such a
node runs with the same mode, so that derivatives are computed by the classes too.
"""

import contextlib
import threading

import mica
from mica import _C
from mica._subclasses.outer_tensors import answer_of, place_alias
from mica.utils._dispatch_calls import answer_of_class, ask_innermost
from mica.utils._python_dispatch import TorchDispatchMode

# Calls that the class answers and that leave no node.
_UNRECORDED = frozenset(["detach", "detach_", "data", "set_", "item"])


def has_torch_dispatch(kind):
    """Whether a class has a __torch_dispatch__ of its own; that of Tensor asks nobody."""
    return getattr(kind, "__torch_dispatch__", None) not in (None, _C._disabled_torch_dispatch_impl)


def is_recorded_class(kind):
    """Whether autograd sees the class's tensors themselves. A class of Mica's own may record what it is made of."""
    return has_torch_dispatch(kind) and not getattr(kind, "_records_parts", False)


def tensors_in(values):
    """The tensors among the arguments of a call."""
    for value in values:
        if isinstance(value, _C.TensorBase):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())


class _Below(TorchDispatchMode):
    """Asks the classes of an operator's tensors for its answer."""

    asked = 0  # how many operators have come to this mode

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = _C._set_dispatch_aside(False)
        _Below.asked += 1
        try:
            if not types:
                with _C.DisableTorchFunctionSubclass():  # the engine computes here, with plain tensors
                    return func(*args, **(kwargs or {}))
            if _C._len_torch_dispatch_stack():
                return ask_innermost(func, types, args, kwargs or {})  # the program's modes come before its classes
            kwargs = kwargs or {}
            return answer_of(
                func, args, kwargs, lambda: ask_classes(func, types, args, kwargs), is_recorded_class, marks_views=False
            )
        finally:
            _C._set_dispatch_aside(before)


_below = _Below()
_caller = threading.local()  # whether the caller of a class records gradients


@contextlib.contextmanager
def enable_reentrant_dispatch():
    """Within a __torch_dispatch__: what plain tensors compute in this block is recorded as where the class was called from."""
    records = getattr(_caller, "records", None)
    with mica.set_grad_enabled(mica.is_grad_enabled() if records is None else records):
        yield


def ask_classes(operator, types, args, kwargs):
    """The answer of the first class that has one. Subclasses are asked before their bases."""
    for kind in sorted(types, key=lambda kind: -len(kind.__mro__)):
        answer = answer_of_class(kind, operator, types, args, kwargs)
        if answer is not NotImplemented:
            return answer
    tried = "\n".join(f"  - tensor subclass {kind}" for kind in types)
    raise TypeError(
        f"Multiple dispatch failed for '{operator}'; all __torch_dispatch__ handlers returned NotImplemented:\n\n{tried}"
    )


def _alias(tensor):
    """A tensor of the same class and elements without history, for the engine; None where the class has no other one."""
    if not is_recorded_class(type(tensor)):
        return None
    before = _C._set_dispatch_aside(False)
    try:
        answer = answer_of_class(type(tensor), mica.ops.aten.detach.default, (type(tensor),), (tensor,), {})
    finally:
        _C._set_dispatch_aside(before)
    if not isinstance(answer, _C.TensorBase) or answer is tensor:
        return None
    if is_recorded_class(type(answer)):
        place_alias(answer, tensor)  # so that a change of the tensor is a change of what was saved of it
    return answer


def is_to_be_recorded(name, args, kwargs):
    """Whether a call asks for a node: a tensor of such a class requires grad."""
    if not mica.is_grad_enabled() or name in _UNRECORDED:
        return False
    return any(each.requires_grad and is_recorded_class(type(each)) for each in tensors_in((*args, *kwargs.values())))


def make_ready():
    """From here on the engine knows whom to ask in a pass through tensors of such classes."""
    _C._set_class_pass(_below, _alias)


def run(function, args, kwargs):
    """Call the function with the classes asked for its operators. NotImplemented if none was."""
    make_ready()
    before, asked = _C._set_dispatch_aside(True), _Below.asked
    outer, _caller.records = getattr(_caller, "records", None), mica.is_grad_enabled()
    try:
        answer = _C._call_in_class_pass(function, tuple(args), kwargs)
    finally:
        _caller.records = outer
        _C._set_dispatch_aside(before)
    is_given = any(answer is each for each in args)  # an answer for which no operator was asked
    return answer if is_given or _Below.asked != asked else NotImplemented


def seeds(tensors, gradients):
    """The gradients that a pass begins with, where the classes make those that are not given."""
    made = [None] * len(tensors) if gradients is None else gradients
    if isinstance(made, _C.TensorBase) or len(made) != len(tensors):
        return gradients
    made = list(made)
    for i, each in enumerate(tensors):
        if made[i] is None and is_recorded_class(type(each)) and each.requires_grad and each.numel() == 1:
            with mica.no_grad():
                made[i] = mica.ones_like(each)
    return gradients if all(each is None for each in made) else tuple(made)
