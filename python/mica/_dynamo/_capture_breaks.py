"""Calls that run what a capture has recorded so far: custom functions, backward passes, questions about random streams."""

import contextlib
import functools
import sys

from mica import _C
from mica._dynamo import _capture_names as _names
from mica._dynamo._capture_names import active
from mica.utils._shared_patch import SharedPatch


@contextlib.contextmanager
def functions_break(capture):
    """In this block autograd.Function, autograd.grad and backward end the graph: they see tensors beneath the calls."""
    from mica import autograd

    with _patched:
        autograd._before_gradients = _flush_active
        yield


def _flush_active(create_graph):
    if (now := active()) is not None and now.active:
        whole = not (_names.is_within_transform() or _names.are_passes_let_pass())
        now.flush("a backward pass", whole=whole, twice=create_graph)


def _before_class(tensor):
    """A tensor of a class is made of another one, with the memory that it has now: of a promise, that of its value."""
    if (now := active()) is not None and now.active and getattr(tensor, "fake_mode", None) is now.fakes:
        now.flush("a tensor of another class is made of one", whole=False)


_C._set_before_class(_before_class)


# Functions that tell or change where a random stream stands.
_STREAMS = {
    name: getattr(_C.Generator, name)
    for name in (
        "clone_state", "get_offset", "get_state", "graphsafe_get_state", "graphsafe_set_state", "manual_seed", "seed",
        "set_offset", "set_state",
    )
}  # fmt: skip


def stream_state():
    """The state of the default random stream, read without recording anything."""
    return _STREAMS["get_state"](_C.default_generator)


def set_stream_state(state):
    _STREAMS["set_state"](_C.default_generator, state)


def _after_draws(plain):
    """A method of generators, before which recorded draws run."""

    @functools.wraps(plain)
    def method(self, *args, **kwargs):
        if (now := active()) is not None and now.active:
            now.draw()
        return plain(self, *args, **kwargs)

    return method


_STREAMS_AFTER_DRAWS = {name: _after_draws(plain) for name, plain in _STREAMS.items()}


def _after_calls(plain):
    """A function of the engine's that reads and writes tensors beneath the calls, before which recorded calls run."""

    @functools.wraps(plain)
    def function(*args):
        if (now := active()) is not None and now.active:
            now.flush(f"{plain.__name__}() is computed in one piece", whole=False)
            return now.aside(plain, args, {})
        return plain(*args)

    return function


# Steps of optimizers, and of a GradScaler.
_ENGINES_OWN = {
    name: getattr(_C, name)
    for name in dir(_C)
    if name in ("_optimizer_zero_grad", "_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_")
    or (name.endswith(("_step", "_lists")) and name.startswith("_"))
}  # fmt: skip
_ENGINES_OWN_AFTER_CALLS = {name: _after_calls(plain) for name, plain in _ENGINES_OWN.items()}


def _before_pass(plain, create_graph):
    """A backward pass of the engine, before which recorded calls run: those that made its seeds, for one."""

    @functools.wraps(plain)
    def function(*args):
        _flush_active(len(args) > create_graph and bool(args[create_graph]))
        return plain(*args)

    return function


# Passes, with the number of the argument that says whether they are recorded.
for _name, _create_graph in (("_autograd_grad", 4), ("_autograd_backward", 3)):
    _ENGINES_OWN[_name] = getattr(_C, _name)
    _ENGINES_OWN_AFTER_CALLS[_name] = _before_pass(_ENGINES_OWN[_name], _create_graph)


def _plain_apply(cls):
    """What Function.apply does where nothing is captured: vmap, once it was used, looks for examples."""
    batched = sys.modules.get("mica.func._batched_autograd")
    return cls._apply if batched is None else functools.partial(batched._applied, cls)


def _apply_uncaptured(cls, *args, **kwargs):
    return _plain_apply(cls)(*args, **kwargs)


def _apply(cls, *args, **kwargs):
    """Function.apply by a name that was bound before the capture, such as `f = MyFunction.apply`."""
    if (now := active()) is not None and now.active:
        return now.uncaptured(_plain_apply(cls), args, kwargs, whole=False)
    return _plain_apply(cls)(*args, **kwargs)


def _patch():
    from mica.autograd import Function

    def apply(cls, *args, **kwargs):
        plain = super(Function, cls).apply
        if (now := active()) is not None and now.active:
            return now.uncaptured(plain, args, kwargs, whole=False)
        return plain(*args, **kwargs)

    Function.apply = classmethod(apply)
    _C._FunctionBase._hook_apply(_apply)
    for name, method in _STREAMS_AFTER_DRAWS.items():
        setattr(_C.Generator, name, method)
    for name, function in _ENGINES_OWN_AFTER_CALLS.items():
        setattr(_C, name, function)


def _restore():
    from mica.autograd import Function

    del Function.apply
    _C._FunctionBase._hook_apply(_apply_uncaptured)
    for name, plain in _STREAMS.items():
        setattr(_C.Generator, name, plain)
    for name, plain in _ENGINES_OWN.items():
        setattr(_C, name, plain)


# While a thread captures a graph, Function.apply ends it, and so do functions that ask where a random stream stands, and
# steps of optimizers.
_patched = SharedPatch(_patch, _restore)
