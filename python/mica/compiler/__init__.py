"""What programs ask and say about compilation: docs/compiler_kernels.md has the design."""

import functools as _functools
import sys as _sys

from mica import _C
from mica.compiler import _running

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "get_default_backend",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe", "list_backends",
    "nested_compile_region", "reset", "set_default_backend", "set_enable_guard_collectives", "set_stance",
    "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe", "substitute_in_graph", "wrap_numpy",
]  # fmt: skip

_default_backend = None


def compile(*args, **kwargs):
    """The same as torch.compile."""
    import mica  # imports this module

    return mica.compile(*args, **kwargs)


def is_compiling():
    """Whether a compiled function is running on this thread, or torch.export is tracing."""
    return _is_exporting_flag or _running.is_compiled(_sys._getframe(1), _is_capturing())


def is_dynamo_compiling():
    """Whether a compiled function is running on this thread."""
    return _running.is_compiled(_sys._getframe(1), _is_capturing())


def _is_capturing():
    """Whether a graph is being made of a function for a backend of the program's own."""
    capture = _sys.modules.get("mica._dynamo.capture")
    return capture is not None and capture.active() is not None


_is_exporting_flag = False


def is_exporting():
    """Whether torch.export is tracing a module."""
    return _is_exporting_flag


def _itself(fn=None):
    return fn if fn is not None else lambda function: function


def disable(fn=None, recursive=True, *, reason=None, wrapping=True):
    """A function, module or class that runs uncompiled within compiled functions. A decorator too, with arguments or without.

    With recursive=False, what the function calls is compiled.
    """
    if fn is None:
        return lambda function: disable(function, recursive, reason=reason, wrapping=wrapping)
    fn = _running.innermost_fn(fn)
    if not callable(fn):
        raise AssertionError("fn must be callable")
    if recursive and isinstance(fn, type):
        return _disabled_class(fn)
    nn = _sys.modules.get("mica.nn")
    if recursive and nn is not None and isinstance(fn, nn.Module):
        import mica  # imports this module

        return mica._dynamo.OptimizedModule(getattr(fn, "_orig_mod", fn), "disable")
    return _disabled(fn, recursive, reason)


def _disabled(inner, recursive=True, reason=None):
    call = _call_uncompiled if recursive else _call_one_uncompiled

    @_functools.wraps(inner)
    def uncompiled(*args, **kwargs):
        return call(inner, args, kwargs)

    uncompiled._torchdynamo_disable = True
    uncompiled._torchdynamo_disable_msg = reason
    uncompiled._torchdynamo_disable_recursive = recursive
    return _running.mark_wrapper(uncompiled, inner)


def _disabled_class(cls):
    """The class itself. Its objects are made and called uncompiled."""
    cls.__init__ = _disabled(cls.__init__)
    if (call := _running.call_of(cls)) is not None:
        cls.__call__ = _disabled(call)
    return cls


def _active_capture():
    capture = _sys.modules.get("mica._dynamo.capture")
    now = None if capture is None else capture.active()
    return now if now is not None and now.active else None


def _reason(inner):
    """Why a graph ends before a disabled function."""
    name = getattr(inner, "__name__", "a function")
    return f"Skip calling `torch.compiler.disable()`d function: {name} is not to be compiled"


def _call_uncompiled(inner, args, kwargs):
    """Call a function with all that it calls uncompiled."""
    now = _active_capture()
    if now is not None:
        now.flush(_reason(inner))
        return now.aside(_running.call, (inner, args, kwargs, False, True), {})
    return _C._call_uncompiled(_running.call, inner, args, kwargs, False, True)


def _call_one_uncompiled(inner, args, kwargs):
    """Call a function that is not compiled, although what it calls is: nothing is put off beyond its beginning."""
    code = _running.code_of(inner)
    if code is None:
        return _call_uncompiled(inner, args, kwargs)
    now = _active_capture()
    if now is None:
        _C._flush_recording("disable")
    else:
        now.flush(_reason(inner))
    return _running.call(inner, args, kwargs, _running.is_thread_compiled(), code)


def allow_in_graph(fn):
    """The function itself, which torch has as one call of a graph: breaks within it are no error. Or a list of functions."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(each) for each in fn]
    if not callable(fn):
        raise AssertionError("allow_in_graph expects a callable")
    _running.mark_opaque(fn)
    names = _sys.modules.get("mica._dynamo._capture_names")
    if names is not None:
        names.disallowed.discard(fn)
    return fn


def assume_constant_result(fn):
    """The function, whose results torch._dynamo.export takes for constants: it runs there on the arguments of the example.

    Elsewhere it runs on every call, compiled or not.
    """
    import functools

    _running.mark_opaque(fn)

    @functools.wraps(fn)
    def assumed(*args, **kwargs):
        whole = _sys.modules.get("mica._dynamo._whole_capture")
        capture = None if whole is None else whole.current()
        return fn(*args, **kwargs) if capture is None else capture.constant(fn, args, kwargs)

    return assumed


def substitute_in_graph(original_fn, *, can_constant_fold_through=False, skip_signature_check=False):
    """Leaves what it decorates as it is: Python runs in compiled functions, so that nothing needs another function."""
    return lambda traceable_fn: traceable_fn


def nested_compile_region(fn=None, **options):
    """The function itself, unchanged: regions of their own are about torch's compiler."""
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
    """Do nothing: results of replayed calls are tensors of their own, so that steps need no marks."""


def reset():
    """Forget the counters, and the graphs that backends have compiled."""
    import mica  # imports this module

    mica._dynamo.reset()


def list_backends(exclude_tags=("debug", "experimental")):
    """The backends by name, those that the program has registered too, without those of some tags."""
    import mica  # imports this module

    tags = {"inductor": (), **dict.fromkeys(mica._dynamo.AS_IT_IS, ("debug",)), **mica._dynamo._tags}
    left_out = set(exclude_tags or ())
    return sorted(name for name, its in tags.items() if not left_out.intersection(its))


def set_default_backend(backend):
    """The backend of functions that are compiled from now on without naming one."""
    global _default_backend
    _default_backend = backend


def get_default_backend():
    return "inductor" if _default_backend is None else _default_backend


class _Stance:
    _name = "default"
    backend = None  # the backend that gets graphs instead of the one of torch.compile

    @property
    def name(self):
        return self._name

    @name.setter
    def name(self, name):
        self._name = name
        _C._run_compiled_eagerly(name == "force_eager")


_stance = _Stance()


class set_stance:
    """Say whether compiled functions are compiled: from the call on, in a `with` block, or in a decorated function.

    "force_eager" runs compiled functions as they are. The others are about graphs for backends of the program's own:
    "eager_on_recompile" runs graphs that are new as they are, "fail_on_recompile" refuses them, "eager_then_compile" runs
    the first call as it is, and `force_backend` hands graphs that are new to another backend.
    """

    def __init__(self, stance="default", *, skip_guard_eval_unsafe=False, force_backend=None):
        known = ("default", "eager_then_compile", "force_eager", "eager_on_recompile", "fail_on_recompile",
                 "aot_eager_then_compile")  # fmt: skip
        if force_backend is not None and stance != "default":
            raise RuntimeError("non-default stance cannot have force_backend set")
        if stance not in known:
            raise ValueError(f"invalid torch.compile stance {stance!r}")
        self._wanted, self._before = (stance, force_backend), (_stance.name, _stance.backend)
        self.__enter__()

    def __call__(self, function):
        self.__exit__()  # a decorator sets it for the calls of the function, and for nothing else
        stance, backend = self._wanted

        @_functools.wraps(function)
        def with_stance(*args, **kwargs):
            with set_stance(stance, force_backend=backend):
                return function(*args, **kwargs)

        return with_stance

    def __enter__(self):
        _stance.name, _stance.backend = self._wanted

    def __exit__(self, *exception):
        _stance.name, _stance.backend = self._before


_guard_collectives = False


def set_enable_guard_collectives(enabled):
    """Keeps the setting, and returns the one before. It has no effect: there are no guards for processes to agree on."""
    global _guard_collectives
    before, _guard_collectives = _guard_collectives, bool(enabled)
    return before


# ---- which guards to keep: options={"guard_filter_fn": ...}. There are none here, so that no filter is ever asked.


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries):
    """For each guard, whether to keep it: guards on modules of torch.nn are dropped."""
    return [not entry.orig_guard.source.is_unspecialized_builtin_nn_module() for entry in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(guard_entries):
    """For each guard, whether to keep it: guards on modules are dropped."""
    return [not entry.orig_guard.source.is_unspecialized_nn_module() for entry in guard_entries]


def keep_tensor_guards_unsafe(guard_entries, keep_parameters=False):
    """For each guard, whether to keep it: guards on tensors are kept, and those on parameters if that is asked for."""
    from mica.nn import Parameter

    return [
        entry.guard_type == "TENSOR_MATCH" and (keep_parameters or not isinstance(entry.value, Parameter))
        for entry in guard_entries
    ]


def keep_portable_guards_unsafe(guard_entries):
    """For each guard, whether to keep it: guards on modes, on sizes, and on tensors that are not globals are kept."""
    kinds = ("GLOBAL_STATE", "SHAPE_ENV")
    return [
        entry.guard_type in kinds or (entry.guard_type == "TENSOR_MATCH" and not entry.is_global)
        for entry in guard_entries
    ]


def skip_guard_on_globals_unsafe(guard_entries):
    """For each guard, whether to keep it: guards on globals are dropped."""
    return [not entry.is_global for entry in guard_entries]


def skip_all_guards_unsafe(guard_entries):
    """For each guard, whether to keep it: all are dropped."""
    return [False for _ in guard_entries]


def save_cache_artifacts():
    """None: nothing is cached."""


def load_cache_artifacts(serialized_artifacts):
    """None: nothing is cached."""


def __getattr__(name):
    if name == "config":
        import mica.compiler.config as config

        return config
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
