"""Compilation of Python functions: there is none yet. `compile` returns what runs as it is, and says so once."""

import functools
import importlib
import inspect
import logging

from mica.compiler import (  # noqa: F401
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    set_stance,
    substitute_in_graph,
)

_said = False


def _say_once():
    global _said
    if not _said:
        _said = True
        logging.getLogger("torch._dynamo").warning(
            "torch.compile: Mica has no compiler yet, so what is compiled runs as it is (this is said once)"
        )


def compile(
    model=None, *, fullgraph=False, dynamic=None, backend=None, mode=None, options=None, name=None, disable=False,  # noqa: F811
    recompile_limit=None, isolate_recompiles=False, shapes_spec=None,
):  # fmt: skip
    """A function or module that computes what the given one computes. A decorator too, with arguments or without.

    A function given as `backend` is a compiler of the caller's own, which needs a graph: that is an error.
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if model is None:
        return lambda function: compile(
            function, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if not callable(model):
        raise RuntimeError(f"torch.compile expects a callable, but got {type(model)}")
    if disable:
        return model
    if callable(backend):
        raise NotImplementedError(
            "torch.compile: a backend of one's own needs a graph of the function, and Mica does not make one yet: "
            "torch.fx.symbolic_trace does for many modules"
        )
    _say_once()
    from mica._dynamo.optimized_module import OptimizedModule
    from mica.nn import Module

    if isinstance(model, Module):
        return OptimizedModule(model)
    if inspect.isclass(model):
        return model
    return _compiled_function(model)


def _compiled_function(function):
    inner = getattr(function, "_torchdynamo_orig_callable", function)

    @functools.wraps(inner)
    def compiled(*args, **kwargs):
        return inner(*args, **kwargs)

    compiled._torchdynamo_orig_callable = inner
    compiled._torchdynamo_inline = inner
    compiled._is_torch_compile = True
    return compiled


def optimize(backend="inductor", *, nopython=False, **options):
    """A decorator: torch.compile with a backend."""
    return lambda function: compile(function, backend=None if backend == "inductor" else backend)


def optimize_assert(backend, **options):
    return optimize(backend)


def reset():
    """Does nothing: no compiled code is kept."""


reset_code_caches = reset


def graph_break(msg=""):
    """Does nothing: no graph is being captured."""


def _same(function=None, *args, **kwargs):
    return function if callable(function) else lambda fn: fn


disallow_in_graph = forbid_in_graph = nonstrict_trace = run = skip_frame = dont_skip_tracing = _same


def _marked(tensor, *args, **kwargs):
    """What is known of sizes before a graph is made: of no effect without one."""


mark_dynamic = maybe_mark_dynamic = mark_static = mark_static_address = mark_unbacked = _marked


def is_dynamo_supported():
    return False


is_inductor_supported = is_dynamo_supported


def lookup_backend(compiler_fn):
    raise RuntimeError(f"Invalid backend: {compiler_fn!r}: Mica has no compiler yet")


def register_backend(compiler_fn=None, name=None, tags=()):
    """The backend itself; nothing is compiled with it."""
    return compiler_fn if compiler_fn is not None else lambda function: function


def explain(f, *extra_args, **extra_kwargs):
    raise NotImplementedError("torch._dynamo.explain: Mica has no compiler yet")


def export(f, *extra_args, **extra_kwargs):
    raise NotImplementedError("torch._dynamo.export: Mica has no compiler yet; torch.fx.symbolic_trace traces modules")


def __getattr__(name):
    if name == "OptimizedModule":
        from mica._dynamo.optimized_module import OptimizedModule

        return OptimizedModule
    if name in ("config", "eval_frame", "utils", "external_utils", "exc", "decorators", "backends"):
        return importlib.import_module(f"mica._dynamo.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
