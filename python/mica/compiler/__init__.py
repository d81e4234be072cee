"""What programs ask and say about compilation. There is no compiler yet: what is compiled runs as it is."""

import contextlib as _contextlib

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "get_default_backend",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "nested_compile_region", "reset",
    "set_default_backend", "set_enable_guard_collectives", "set_stance", "substitute_in_graph", "wrap_numpy",
]  # fmt: skip

_default_backend = None


def compile(*args, **kwargs):
    """The same as torch.compile: Mica runs the function as it is."""
    import mica  # torch.compile is above this module

    return mica.compile(*args, **kwargs)


def is_compiling():
    """Always False: Mica compiles nothing."""
    return False


def is_dynamo_compiling():
    """Always False: Mica compiles nothing."""
    return False


_is_exporting_flag = False


def is_exporting():
    """Whether torch.export is tracing a module."""
    return _is_exporting_flag


def _itself(fn=None):
    return fn if fn is not None else lambda function: function


def disable(fn=None, recursive=True, *, reason=None):
    """The function itself, with arguments or without."""
    return _itself(fn)


def allow_in_graph(fn):
    """The function itself, unchanged."""
    return fn


def assume_constant_result(fn):
    """The function itself, unchanged."""
    return fn


def substitute_in_graph(original_fn, *, can_constant_fold_through=False, skip_signature_check=False):
    """Leaves what it decorates as it is."""
    return lambda traceable_fn: traceable_fn


def nested_compile_region(fn=None, **options):
    """The function itself, with arguments or without."""
    return _itself(fn)


def wrap_numpy(fn):
    """The function of NumPy arrays as a function of tensors."""
    import functools

    from mica.utils._pytree import tree_map_only

    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        import numpy

        from mica import Tensor, from_numpy

        args, kwargs = tree_map_only(Tensor, lambda tensor: tensor.numpy(), (args, kwargs))
        return tree_map_only(numpy.ndarray, from_numpy, fn(*args, **kwargs))

    return wrapped


def cudagraph_mark_step_begin():
    """Does nothing: no steps are recorded."""


def reset():
    """Does nothing: no compiled code is kept."""


def list_backends(exclude_tags=("debug", "experimental")):
    """The backends by name: there is none that compiles."""
    return []


def set_default_backend(backend):
    """Keep the backend; what is compiled runs as it is, whatever it is."""
    global _default_backend
    _default_backend = backend


def get_default_backend():
    return "inductor" if _default_backend is None else _default_backend


class set_stance(_contextlib.ContextDecorator):
    """Whether to compile: nothing is. A function, a context or a decorator."""

    def __init__(self, stance="default", *, skip_guard_eval_unsafe=False, force_backend=None):
        known = ("default", "eager_then_compile", "force_eager", "eager_on_recompile", "fail_on_recompile",
                 "aot_eager_then_compile")  # fmt: skip
        if stance not in known:
            raise ValueError(f"invalid torch.compile stance {stance!r}")
        self.stance = stance

    def __enter__(self):
        return None

    def __exit__(self, *exception):
        return None


def set_enable_guard_collectives(enabled):
    """Returns the value before, which is always False: there are no guards to agree on."""
    return False


def save_cache_artifacts():
    """None: nothing is cached."""


def load_cache_artifacts(serialized_artifacts):
    """None: nothing is cached."""


def __getattr__(name):
    if name == "config":
        import mica.compiler.config as config

        return config
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
