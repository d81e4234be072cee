"""The way of an operation to a TorchDispatchMode: which operator it is, and its arguments as torch hands them over."""

import functools
from types import FunctionType

import mica
from mica import _C


class _Call:
    """How the values of one operator become args and kwargs: what has its default is left out, as in torch."""

    def __init__(self, name):
        name, _, overload = name.partition(".")
        self.operator = getattr(getattr(mica.ops.aten, name), overload or "default")
        arguments = self.operator._schema.arguments
        self.names = [a.name for a in arguments]
        self.defaults = [(a.default_value,) if a.has_default_value() else () for a in arguments]
        self.positional = sum(not a.kwarg_only for a in arguments)
        is_like = any(str(a.type).startswith("Tensor") for a in arguments)
        self.place = self.names.index("device") if "device" in self.names and name != "_to_copy" else None
        self.device = None if is_like else self.place
        self.pinned = self.names.index("pin_memory") if "pin_memory" in self.names and "size" in self.names else None

    def split(self, values, by_formula=False):
        """(args, kwargs)"""
        if self.device is not None and values[self.device] is None:
            values[self.device] = mica.get_default_device()
        if self.pinned is not None and values[self.pinned] is None and not by_formula:
            values[self.pinned] = False  # programs pass it, derivatives do not
        count = self.positional
        while count and self._is_default(count - 1, values):
            count -= 1
        named = range(self.positional, len(values))
        return tuple(values[:count]), {self.names[i]: values[i] for i in named if not self._is_default(i, values)}

    def _is_default(self, i, values):
        if not self.defaults[i]:
            return False
        value, (default,) = values[i], self.defaults[i]
        if value is None or default is None:
            return value is default
        if isinstance(value, list):
            # A single number stands for a list of equal ones.
            given = list(default) if isinstance(default, (list, tuple)) else [default] * len(value)
            return value == given
        return not isinstance(value, _C.TensorBase) and type(value) is type(default) and value == default


_call = functools.cache(_Call)
_WITH_NUMBERS = frozenset(["add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor"])


def _place_of_fakes(mode, values):
    """Where a derivative makes a tensor for fake ones, which are on the meta device to the engine."""
    from mica._guards import active_fake_mode

    place = getattr(values[0], "fake_device", None)
    fakes = mode if hasattr(mode, "fake_tensor_converter") else active_fake_mode()
    return place or getattr(fakes, "last_device", None) or _C.device("meta")


def _firsts(args, kwargs):
    """The classes among the tensors of a call that have a __torch_dispatch__ of their own, with the first tensor of each."""
    found = {}

    def look(value):
        if isinstance(value, _C.TensorBase):
            kind = type(value)
            own = getattr(kind, "__torch_dispatch__", None)
            if own not in (None, _C._disabled_torch_dispatch_impl):
                found.setdefault(kind, value)
        elif isinstance(value, (list, tuple)):
            for each in value:
                look(each)

    look(args)
    look(list(kwargs.values()))
    return found


def overloaded_types(args, kwargs):
    """The classes among the tensors of a call that have a __torch_dispatch__ of their own."""
    return tuple(_firsts(args, kwargs))


def answer_of_class(kind, operator, types, args, kwargs):
    """What a class says to a call of an operator: by the rule that was registered for both, or its __torch_dispatch__."""
    rule = getattr(getattr(operator, "_op", None), "dispatch_rules", {}).get(kind)
    if rule is not None:
        return rule(kind, operator, types, args, kwargs)
    asked = kind.__torch_dispatch__
    if isinstance(asked, FunctionType):  # a method of its tensors; one that is static is the same on a tensor
        asked = _firsts(args, kwargs).get(kind, kind).__torch_dispatch__
    return asked(operator, types, args, kwargs)


def ask(mode, operator, types, args, kwargs):
    """The answer of a mode that has been taken off the stack, or if it has none, that of the class of a tensor."""
    result = mode.__torch_dispatch__(operator, types, args, kwargs)
    for kind in types if result is NotImplemented else ():
        _C._push_on_torch_dispatch_stack(mode)  # so that it sees what the class calls
        try:
            result = answer_of_class(kind, operator, types, args, kwargs)
        finally:
            _C._pop_torch_dispatch_stack()
        if result is not NotImplemented:
            break
    if result is NotImplemented:
        raise TypeError(
            f"Multiple dispatch failed for '{operator}'; all __torch_dispatch__ handlers returned NotImplemented:\n\n"
            f"  - mode object {mode}\n\nFor more information, try re-running with TORCH_LOGS=not_implemented"
        )
    return result


def answer(mode, name, values):
    """The answer of the mode for an operation of the engine. The engine has taken the mode off the stack."""
    by_formula = _C._asked_by_formula()
    if by_formula and name in _WITH_NUMBERS and not isinstance(values[1], _C.TensorBase):
        name = name.replace(".Tensor", ".Scalar")  # derivatives have numbers where a program has tensors
    call = _call(name)
    if by_formula and call.place is not None and str(values[call.place]) == "meta":
        values[call.place] = _place_of_fakes(mode, values)
    args, kwargs = call.split(values, by_formula)
    return ask(mode, call.operator, overloaded_types(args, kwargs), args, kwargs)


def ask_innermost(operator, types, args, kwargs):
    """The answer of the innermost mode for an operator that was called from Python."""
    mode = _C._pop_torch_dispatch_stack()
    try:
        return ask(mode, operator, types, args, kwargs)
    finally:
        _C._push_on_torch_dispatch_stack(mode)
