"""Compilation of Python functions: `compile`. What is compiled runs as Python, and its kernels run together: docs/compiler.md."""

import functools
import importlib
import inspect

from mica import _C
from mica._dynamo.backend_names import AS_IT_IS
from mica.compiler import (  # noqa: F401
    _stance,
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    set_stance,
    substitute_in_graph,
)

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")
_call = _C._call_compiled
_registered = {}  # backends of the program's own, by name


def compile(
    model=None, *, fullgraph=False, dynamic=None, backend=None, mode=None, options=None, name=None, disable=False,  # noqa: F811
    recompile_limit=None, isolate_recompiles=False, shapes_spec=None,
):  # fmt: skip
    """A function or module that computes what the given one computes, with its kernels run together.

    A decorator too, with arguments or without. A function given as `backend` is a compiler of the caller's own, which
    needs a graph: that is an error.
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if model is None:
        return lambda function: compile(
            function, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if not callable(model):
        raise RuntimeError(f"torch.compile expects a callable, but got {type(model)}")
    _check(backend, mode, options)
    if disable:
        return model
    from mica._dynamo.optimized_module import OptimizedModule
    from mica.nn import Module

    if isinstance(model, Module):
        return OptimizedModule(model, backend)
    if inspect.isclass(model):
        return model
    return _compiled_function(model, backend)


def _check(backend, mode, options):
    if backend is None:
        from mica.compiler import get_default_backend

        backend = get_default_backend()
    if callable(backend) or backend in _registered:
        raise NotImplementedError(
            "torch.compile: a backend of one's own needs a graph of the function, and Mica does not make one yet: "
            "torch.fx.symbolic_trace does for many modules"
        )
    if backend != "inductor" and backend not in AS_IT_IS:
        from mica._dynamo.exc import InvalidBackend

        raise InvalidBackend(backend)
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if options:
        from mica._inductor import config

        known = config.get_config_copy()
        for key in options:
            if key.replace("-", "_") not in known:
                raise RuntimeError(f"Unexpected optimization option {key}, known options are {list(known)}")


def _compiled_function(function, backend=None):
    inner = getattr(function, "_torchdynamo_orig_callable", function)
    if backend in AS_IT_IS:

        def compiled(*args, **kwargs):
            return inner(*args, **kwargs)

    else:

        def compiled(*args, **kwargs):
            if _stance.name == "force_eager":
                return inner(*args, **kwargs)
            return _call(inner, *args, **kwargs)

    functools.update_wrapper(compiled, inner)

    compiled._torchdynamo_orig_callable = inner
    compiled._torchdynamo_inline = inner
    compiled._is_torch_compile = True
    return compiled


class CompiledForward:
    """The forward of a module that was compiled in place."""

    _is_compiled_forward = True

    def __init__(self, forward, *args, **kwargs):
        self._inner = getattr(forward, "_inner", forward)
        self._compiled = compile(self._inner, *args, **kwargs)
        functools.update_wrapper(self, self._inner)

    def __call__(self, *args, **kwargs):
        return self._compiled(*args, **kwargs)


def optimize(backend="inductor", *, nopython=False, **options):
    """A decorator: torch.compile with a backend."""
    return lambda function: compile(function, backend=backend)


def optimize_assert(backend, **options):
    return optimize(backend)


def reset():
    """Forget what was counted: no compiled code is kept, so that there is nothing else to forget."""
    _C._reset_recording_counts()


reset_code_caches = reset


def graph_break(msg=""):
    """Run what was put off, as torch would end its graph."""
    _C._flush_recording()


def _same(function=None, *args, **kwargs):
    return function if callable(function) else lambda fn: fn


disallow_in_graph = forbid_in_graph = nonstrict_trace = run = skip_frame = dont_skip_tracing = _same


def _marked(tensor, *args, **kwargs):
    """What is known of sizes before a graph is made: of no effect without one."""


mark_dynamic = maybe_mark_dynamic = mark_static = mark_static_address = mark_unbacked = _marked


def is_dynamo_supported():
    return True


is_inductor_supported = is_dynamo_supported


def lookup_backend(compiler_fn):
    """A backend of the program's own by its name."""
    if callable(compiler_fn):
        return compiler_fn
    if compiler_fn not in _registered:
        from mica._dynamo.exc import InvalidBackend

        raise InvalidBackend(compiler_fn)
    return _registered[compiler_fn]


def register_backend(compiler_fn=None, name=None, tags=()):
    """Keep a backend by its name. To compile with it needs a graph, which is an error."""
    if compiler_fn is None:
        return lambda function: register_backend(function, name, tags)
    _registered[name or compiler_fn.__name__] = compiler_fn
    return compiler_fn


def explain(f, *extra_args, **extra_kwargs):
    """Call the function, compiled, and say what ran: an object that prints, with counts of flushes and loops."""
    from mica._dynamo.explanation import explain_call

    if extra_args or extra_kwargs:  # the older spelling
        return explain_call(f, *extra_args, **extra_kwargs)
    return functools.partial(explain_call, f)


def export(f, *extra_args, **extra_kwargs):
    raise NotImplementedError(
        "torch._dynamo.export: a compiled function makes no graph; torch.export.export and torch.fx.symbolic_trace do"
    )


def __getattr__(name):
    if name == "OptimizedModule":
        from mica._dynamo.optimized_module import OptimizedModule

        return OptimizedModule
    if name in ("config", "eval_frame", "utils", "external_utils", "exc", "decorators", "backends"):
        return importlib.import_module(f"mica._dynamo.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
