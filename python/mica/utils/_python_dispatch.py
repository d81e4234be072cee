"""__torch_dispatch__: torch's way of taking operations over, below autograd. By modes, and by classes of tensors."""

import contextlib

from mica import _C
from mica._functions.tags import Tag

_len_torch_dispatch_stack = _C._len_torch_dispatch_stack
_get_dispatch_stack_at = _C._get_dispatch_stack_at
_push_on_torch_dispatch_stack = _C._push_on_torch_dispatch_stack
_pop_torch_dispatch_stack = _C._pop_torch_dispatch_stack


class TorchDispatchMode:
    """Sees every operation of a with block, below autograd: __torch_dispatch__ is handed operators of torch.ops.

    Within __torch_dispatch__ the mode itself is not active: func(*args, **kwargs) goes to the mode around it, and in the
    end to the engine. What it returns is what the operation returns, with the operation's own derivative.
    """

    supports_higher_order_operators = False

    def __init__(self, _dispatch_key=None):
        """Makes the mode; the argument is ignored."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError

    def __enter__(self):
        if isinstance(getattr(self.__torch_dispatch__, "__self__", None), type):
            raise RuntimeError(
                f"Defining your mode's `__torch_dispatch__` as a classmethod is not supported, please make it a plain method: "
                f"{type(self).__name__}"
            )
        _C._push_on_torch_dispatch_stack(self)
        return self

    def __exit__(self, exc_type, exc_value, traceback):
        _C._pop_torch_dispatch_stack()

    @classmethod
    def push(cls, *args, **kwargs):
        """A new mode; `with Mode():` says the same."""
        import warnings

        warnings.warn("`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`", stacklevel=2)
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls):
        return False

    @classmethod
    def ignore_compile_internals(cls):
        return False


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that only passes operations on."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


# ---- the stack of modes


def _get_current_dispatch_mode():
    """The innermost mode, or None."""
    depth = _C._len_torch_dispatch_stack()
    return _C._get_dispatch_stack_at(depth - 1) if depth else None


def _get_current_dispatch_mode_stack():
    return [_C._get_dispatch_stack_at(i) for i in range(_C._len_torch_dispatch_stack())]


def is_in_torch_dispatch_mode(include_infra_modes=True):
    """Whether a mode is active; modes that make fake tensors can be left out."""
    return any_torch_dispatch_mode_on_stack(include_infra_modes=include_infra_modes)


is_in_any_mode_without_ignore_compile_internals = is_in_torch_dispatch_mode


def any_torch_dispatch_mode_on_stack(*, include_infra_modes=True, respect_ignore_compile_internals=True):
    """Whether a mode is active; modes that make fake tensors can be left out."""
    return any(include_infra_modes or not mode.is_infra_mode() for mode in _get_current_dispatch_mode_stack())


def _push_mode(mode):
    _C._push_on_torch_dispatch_stack(mode)


def _pop_mode(k=None):
    return _C._pop_torch_dispatch_stack()


@contextlib.contextmanager
def _pop_mode_temporarily(k=None):
    mode = _pop_mode(k)
    try:
        yield mode
    finally:
        _push_mode(mode)


@contextlib.contextmanager
def _disable_current_modes():
    """In this block no mode is active."""
    modes = [_pop_mode() for _ in range(_C._len_torch_dispatch_stack())]
    try:
        yield modes[::-1]
    finally:
        for mode in reversed(modes):
            _push_mode(mode)


@contextlib.contextmanager
def _disable_infra_mode(key):
    yield None


@contextlib.contextmanager
def no_dispatch():
    """In this block neither modes nor classes are asked."""
    modes = [_C._pop_torch_dispatch_stack() for _ in range(_C._len_torch_dispatch_stack())]
    before = _C._set_dispatch_aside(True)
    try:
        yield
    finally:
        _C._set_dispatch_aside(before)
        for mode in reversed(modes):
            _C._push_on_torch_dispatch_stack(mode)


# ---- classes


def is_traceable_wrapper_subclass(t):
    """Whether a tensor is made of other tensors, and says how: __tensor_flatten__ and __tensor_unflatten__."""
    return is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t):
    """Whether a class is a traceable wrapper subclass."""
    from mica import Tensor

    has = hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")
    return issubclass(t, Tensor) and t is not Tensor and has


def transform_subclass(t, callback, outer_size=None, outer_stride=None):
    """The tensor made of other parts: callback(name, part) for each."""
    names, context = t.__tensor_flatten__()
    parts = {name: callback(name, getattr(t, name)) for name in names}
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    return type(t).__tensor_unflatten__(parts, context, size, stride)


def return_and_correct_aliasing(func, args, kwargs, out):
    """`out` as a class's __torch_dispatch__ should return it: the argument itself where the operator changes one.

    A view of a wrapper shares no memory of the wrapper, which has none: what it is made of shares its own. An operator
    that changes sizes and strides changes those of the wrapper too.
    """
    if Tag.inplace_view in func.tags:
        with no_dispatch():
            func(*args, **(kwargs or {}))
    changed = [a.alias_info is not None and a.alias_info.is_write for a in func._schema.returns]
    if not any(changed):
        return out
    written = [a for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    names = [a.name for a in func._schema.arguments]

    def given(argument):
        place = names.index(argument.name)
        return args[place] if place < len(args) and not argument.kwarg_only else (kwargs or {}).get(argument.name)

    if len(func._schema.returns) == 1:
        return given(written[0])
    return type(out)([given(a) for a in written])


def autograd_would_have_decomposed(func, flat_args):
    """Whether autograd takes an operator apart before a class sees it, which is so for composite operators."""
    return False
