"""Taking calls over: __torch_function__ for functions written in Python, and modes that see every call."""

import contextlib
import functools
import types
import warnings

from mica import _C

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]

has_torch_function = _C._has_torch_function
_asked = _C._handle_torch_function


def has_torch_function_unary(obj):
    """Whether the object wants to be asked before a function is called on it."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*objects):
    """Whether one of the objects wants to be asked before a function is called on them."""
    return has_torch_function(objects)


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """Ask the active modes, then the relevant arguments, to answer a call; TypeError if none does."""
    return _asked(public_api, tuple(relevant_args), *args, **kwargs)


def is_tensor_like(inp):
    """Whether the object is a tensor, or of a type with a __torch_function__."""
    return type(inp) is _C.Tensor or hasattr(inp, "__torch_function__")


def redispatch_function(func, types, args, kwargs):
    """Call a function that __torch_function__ was handed, without asking for that call again; what it calls asks as ever."""
    return _C._skip_one_hop_torch_function(func, types, args, kwargs)


def wrap_torch_function(dispatcher):
    """Decorate a function so that the arguments that `dispatcher(*args, **kwargs)` returns are asked first."""

    def decorate(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def get_default_nowrap_functions():
    """The functions whose results are not converted to the subclass by Tensor's own __torch_function__."""
    return {_C.Tensor._base.__get__, _C.Tensor.grad.__get__, _C.Tensor._grad.__get__}


def _namespaces():
    import mica  # all public modules, which import this one

    return (("torch", mica), ("torch.functional", mica.functional), ("torch.nn.functional", mica.nn.functional),
            ("torch.nn.init", mica.nn.init), ("torch.Tensor", mica.Tensor), ("torch.linalg", mica.linalg),
            ("torch.fft", mica.fft), ("torch.special", mica.special))  # fmt: skip


def _members(owner):
    """The public functions and methods of a namespace, an attribute of Tensor as its __get__ and __set__."""
    for name in sorted(getattr(owner, "__all__", None) or dir(owner)):
        if name.startswith("_") and not (isinstance(owner, type) and name.startswith("__")):
            continue
        member = getattr(owner, name, None)
        if isinstance(member, (types.GetSetDescriptorType, property)):
            yield f"{name}.__get__", member.__get__
            yield f"{name}.__set__", member.__set__
        elif callable(member) and not isinstance(member, type):
            yield name, member


@functools.cache
def _names():
    found = {}
    for prefix, owner in _namespaces():
        for name, member in _members(owner):
            found.setdefault(member, f"{prefix}.{name}")
    return found


def get_overridable_functions():
    """The functions that ask __torch_function__, by the namespace they are found in."""
    return {owner: [member for _, member in _members(owner)] for _, owner in _namespaces()}


def get_ignored_functions():
    """The public functions that do not ask a __torch_function__, most of them since they take no tensors: a set."""
    from mica._functions import overridable

    return set(overridable.ignored())


def get_testing_overrides():
    """A dict: the functions that ask a __torch_function__, and functions that return -1 with the same parameters.

    `inspect.signature` of the latter tells the parameters. A function of several overloads has those of the longest,
    with defaults for what the others do without.
    """
    from mica._functions import overridable

    return overridable.stand_ins(get_overridable_functions())


def resolve_name(f):
    """The public name of a function that __torch_function__ was handed, "torch.add" or "torch.Tensor.add"; or None."""
    return _names().get(f)


@functools.cache
def _tensor_members():
    public = {member for _, member in _members(_C.Tensor)}
    return public | {member for name in dir(_C.Tensor) if callable(member := getattr(_C.Tensor, name))}


def is_tensor_method_or_property(func):
    """Whether __torch_function__ was handed a method or an attribute of Tensor rather than a function."""
    return func in _tensor_members() or getattr(func, "__name__", None) == "__get__"


class TorchFunctionMode:
    """Sees every call of a function while it is active: `with mode:` sends them to its __torch_function__.

    Within __torch_function__ the mode itself is not active, so it may call what it was handed.
    """

    # Whether a call of torch.ops.aten.add.Tensor comes as that operator. Mica's own modes look at the function it calls.
    _sees_operators = True

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError

    def __enter__(self):
        found = next(
            vars(kind)["__torch_function__"] for kind in type(self).__mro__ if "__torch_function__" in vars(kind)
        )
        if isinstance(found, classmethod):
            raise RuntimeError(
                "Defining your mode's `__torch_function__` as a classmethod is not supported, please make it a plain method"
            )
        _C._push_on_torch_function_stack(self)
        return self

    def __exit__(self, exc_type, exc_value, traceback):
        _C._pop_torch_function_stack()

    @classmethod
    def push(cls, *args, **kwargs):
        """A new mode; `with Mode():` says the same."""
        warnings.warn("`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`", stacklevel=2)
        return cls(*args, **kwargs)


@contextlib.contextmanager
def _enable_torch_function():
    """A with block in which modes and classes are asked again, whatever was switched off outside."""
    modes, classes = _C._set_torch_function_disabled(False), _C._set_torch_function_subclass_disabled(False)
    try:
        yield
    finally:
        _C._set_torch_function_disabled(modes)
        _C._set_torch_function_subclass_disabled(classes)


def enable_reentrant_dispatch():
    """A `with` block within a __torch_dispatch__ in which autograd records operations on plain tensors as it does outside."""
    from mica._subclasses import recorded

    return recorded.enable_reentrant_dispatch()


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that only passes calls on."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _get_current_function_mode():
    depth = _C._len_torch_function_stack()
    return _C._get_function_stack_at(depth - 1) if depth else None


def _get_current_function_mode_stack():
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]
