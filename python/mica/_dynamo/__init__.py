"""Compilation of Python functions: `compile`. What is compiled runs as Python, and its kernels run together:
docs/compiler.md."""

import functools
import importlib
import inspect
import os
import sys
import warnings

from mica import _C
from mica._dynamo import compile_options
from mica._dynamo.backend_names import AS_IT_IS
from mica._dynamo.callback import callback_handler, on_compile_end, on_compile_start  # noqa: F401
from mica._dynamo.compiled_calls import as_it_is, compiled_call
from mica._dynamo.decorators import (  # noqa: F401
    _BreaksAreErrors,
    disable_nested_graph_breaks,
    disallow_in_graph,
    dont_skip_tracing,
    error_on_graph_break,
    forbid_in_graph,
    graph_break,
    is_dynamo_disable_recursive,
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
    nonstrict_trace,
    patch_dynamo_config,
    run,
    skip_frame,
    step_unsupported,
)
from mica.compiler import (  # noqa: F401
    _running,
    _stance,
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    set_stance,
    substitute_in_graph,
)

_registered, _tags = {}, {}  # backends of the program's own, by name, and what they are called besides


def compile(
    model=None, *, fullgraph=False, dynamic=None, backend=None, mode=None, options=None, name=None, disable=False,  # noqa: F811
    recompile_limit=None, isolate_recompiles=False, shapes_spec=None,
):  # fmt: skip
    """A function or module that computes what the given one computes, with its kernels run together (docs/compiler.md).

    It is a decorator too, with or without these arguments:
        fullgraph: whether branches on values, and other breaks of torch's graphs, are an error
        dynamic: with a backend of one's own, whether sizes are left open; None leaves those open that have changed
        backend: a function that gets graphs and returns functions that compute them (docs/graphs.md), or a name
        mode, options: are checked; those that ask for CUDA graphs, as "reduce-overhead" does, replay calls soon
    """
    compile_options.check(mode, options, dynamic)
    if model is None:
        return lambda function: compile(
            function, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable,
            recompile_limit=recompile_limit,
        )  # fmt: skip
    if not callable(model):
        raise RuntimeError(f"torch.compile expects a callable, but got {type(model)}")
    compile_options.check_names(mode, options, _check(backend))
    if disable or "1" in map(os.environ.get, ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")):
        return model
    from mica._dynamo.optimized_module import DISABLED, OptimizedModule
    from mica.nn import Module

    model = _running.innermost_fn(model)
    if isinstance(model, OptimizedModule) and model._backend == DISABLED:
        model = model._orig_mod
    if inspect.isclass(model):
        return _with_compiled_calls(model, backend, fullgraph, dynamic, mode, options, recompile_limit)
    captured = _captured(model, _graph_compiler(backend, options, fullgraph), fullgraph, dynamic, recompile_limit)
    if captured is None and backend not in AS_IT_IS and compile_options.asks_for_replay(mode, options):
        captured = _replayed(model, bool(fullgraph))
    if isinstance(model, Module):
        return OptimizedModule(model, backend, captured, bool(fullgraph))
    return _compiled_function(model, backend, captured, bool(fullgraph))


def _graph_compiler(backend, options, fullgraph):
    """The function that gets the graphs: the program's own backend, or one that runs graphs as they are. None without one."""
    if backend is None:
        from mica.compiler import get_default_backend

        backend = get_default_backend()
    if callable(backend):
        compiler = backend
    elif backend in _registered:
        compiler = _registered[backend]
    elif fullgraph and backend in AS_IT_IS:
        from mica._dynamo.backends import debugging

        compiler = debugging.aot_eager if backend.startswith("aot") else debugging.eager
    else:
        return None
    return functools.partial(compiler, options=options) if options and backend not in AS_IT_IS else compiler


def _captured(model, compiler, fullgraph, dynamic, recompile_limit):
    if compiler is None:
        return None
    from mica._dynamo.capture import Captured

    return Captured(model, compiler, fullgraph, dynamic, recompile_limit)


def _replayed(model, fullgraph):
    """The function with calls that are replayed: as graphs of a GPU's work, or as lists of calls on the CPU's tensors."""
    from mica._dynamo.replay import Replayed

    return Replayed(model, _C._CompiledCall(model, fullgraph))


def _check(backend):
    """The backend by its name, or None where it is the program's own."""
    if backend is None:
        from mica.compiler import get_default_backend

        backend = get_default_backend()
    if callable(backend) or backend in _registered:
        return None
    if backend != "inductor" and backend not in AS_IT_IS:
        from mica._dynamo.exc import InvalidBackend

        raise InvalidBackend(backend)
    return backend


def _with_compiled_calls(cls, *settings):
    """The class itself. Calls of its objects are compiled."""
    backend, fullgraph, dynamic, mode, options, limit = settings
    plain = _running.call_of(cls)
    if plain is not None:

        @functools.wraps(plain)
        def call(self, *args, **kwargs):
            return plain(self, *args, **kwargs)

        cls.__call__ = compile(
            call,
            backend=backend,
            fullgraph=fullgraph,
            dynamic=dynamic,
            mode=mode,
            options=options,
            recompile_limit=limit,
        )
    return cls


def _compiled_function(inner, backend=None, captured=None, fullgraph=False):
    call = None
    if captured is not None:

        def compiled(*args, **kwargs):
            return (inner if _stance.name == "force_eager" else captured)(*args, **kwargs)

    else:
        call = as_it_is(inner) if backend in AS_IT_IS else compiled_call(inner, fullgraph)
        compiled = _forwarding(inner, call)
    functools.update_wrapper(compiled, inner)

    _running.mark_wrapper(compiled, inner)
    compiled._torchdynamo_inline = inner
    compiled._captured = captured
    compiled._compiled_call = call
    compiled._is_torch_compile = True
    return compiled


def _forwarding(inner, call):
    """A function that hands its arguments to `call`: by name and number as `inner` has them, where these are plain.

    To gather arguments and to spread them again would take as long as a small operation does.
    """
    code = getattr(inner, "__code__", None)
    plain = inspect.isfunction(inner) and not code.co_kwonlyargcount and not code.co_flags & (4 | 8)
    names = code.co_varnames[: code.co_argcount] if plain else ()
    if not plain or "call" in names or not all(name.isidentifier() for name in names):

        def compiled(*args, **kwargs):
            return call(*args, **kwargs)

        return compiled
    only = ", ".join(names[: code.co_posonlyargcount]) + ", /, " if code.co_posonlyargcount else ""
    taken = only + ", ".join(names[code.co_posonlyargcount :])
    compiled = eval(f"lambda {taken}: call({', '.join(names)})", {"call": call})
    compiled.__defaults__ = inner.__defaults__
    return compiled


class CompiledForward:
    """The forward of a module that was compiled in place."""

    _is_compiled_forward = True

    def __init__(self, forward, *args, **kwargs):
        self._inner = getattr(forward, "_inner", forward)
        self._compiled = compile(self._inner, *args, **kwargs)
        functools.update_wrapper(self, self._inner)

    def __call__(self, /, *args, **kwargs):
        return self._compiled(*args, **kwargs)


def optimize(
    backend="inductor", *, nopython=False, error_on_graph_break=None, guard_export_fn=None, guard_fail_fn=None,  # noqa: F811
    guard_filter_fn=None, disable=False, dynamic=None, recompile_limit=None, isolate_recompiles=False, shapes_spec=None,  # noqa: F811
):  # fmt: skip
    """A decorator: torch.compile with a backend. There are no guards: arguments about them are refused, or
    have no effect."""
    if guard_export_fn is not None or guard_fail_fn is not None:
        raise NotImplementedError("torch._dynamo.optimize: there are no guards, so that guard_export_fn and "
                                  "guard_fail_fn would never be called")  # fmt: skip

    def decorate(function):
        made = compile(
            function, backend=backend, fullgraph=nopython, dynamic=dynamic, disable=disable,
            recompile_limit=recompile_limit, isolate_recompiles=isolate_recompiles, shapes_spec=shapes_spec,
        )  # fmt: skip
        return made if break_or_not is None or nopython or disable else break_or_not(made)

    break_or_not = None if error_on_graph_break is None else _BreaksAreErrors(error_on_graph_break)
    return decorate


def optimize_assert(backend, **options):
    """A decorator: torch.compile with a backend, where a break of a graph is an error."""
    return optimize(backend, nopython=True, **options)


def reset():
    """Forget the counters, the graphs that backends have compiled, and what is replayed."""
    _C._reset_recording_counts()
    for name in ("mica._dynamo.capture", "mica._dynamo.replay.calls"):
        if name in sys.modules:
            sys.modules[name].forget()


reset_code_caches = reset


def is_dynamo_supported():
    return True


is_inductor_supported = is_dynamo_supported


def lookup_backend(compiler_fn):
    """A backend by its name."""
    if callable(compiler_fn):
        return compiler_fn
    if compiler_fn in AS_IT_IS:
        from mica._dynamo.backends import debugging

        return debugging.aot_eager if compiler_fn.startswith("aot") else debugging.eager
    if compiler_fn == "inductor":
        from mica._inductor.compile_fx import compile_fx

        return compile_fx
    if compiler_fn not in _registered:
        from mica._dynamo.exc import InvalidBackend

        raise InvalidBackend(compiler_fn)
    return _registered[compiler_fn]


def register_backend(compiler_fn=None, name=None, tags=()):
    """Keep a backend by its name: torch.compile(backend=name). list_backends leaves some out by their tags."""
    if compiler_fn is None:
        return lambda function: register_backend(function, name, tags)
    name = name or compiler_fn.__name__
    _registered[name], _tags[name] = compiler_fn, frozenset(tags)
    return compiler_fn


def explain(f, *extra_args, **extra_kwargs):
    """A function that calls `f` and says which graphs a backend of the program's own would get, and where and why each ends."""
    from mica._dynamo.explanation import explain_graphs

    if extra_args or extra_kwargs:
        warnings.warn(
            "torch._dynamo.explain(f, *args) is the older spelling of explain(f)(*args)", FutureWarning, stacklevel=2
        )
        return explain_graphs(f, *extra_args, **extra_kwargs)
    return functools.partial(explain_graphs, f)


def export(
    f, *extra_args, aten_graph=False, pre_dispatch=False, decomposition_table=None, tracing_mode="symbolic",
    dynamic_shapes=None, specialize_float=True, assume_static_by_default=False, same_signature=True,
    disable_constraint_solver=False, prefer_deferred_runtime_asserts_over_guards=False, _log_export_usage=True,
    constraints=None, **extra_kwargs,
):  # fmt: skip
    """A function that returns the graph of `f` for given arguments, and the guards on their sizes that the graph relies on.

    It is an older way than torch.export: the graph has the calls of the function, or with `aten_graph` aten's operators.

    Args:
        aten_graph, pre_dispatch, decomposition_table: whether and how the graph is written in aten's operators
        tracing_mode: "symbolic" leaves sizes open, all or with `dynamic_shapes` too; others fix them
        dynamic_shapes: as torch.export.export takes it: sizes that must stay open
        same_signature: the module takes and returns what `f` does, or the tensors of it that the graph has
    """
    if decomposition_table is not None and not aten_graph:
        raise AssertionError("torch._dynamo.export: a decomposition_table goes with aten_graph=True")
    if pre_dispatch and not aten_graph:
        raise AssertionError("pre_dispatch=True can only be used when aten_graph=True")
    if constraints:
        raise NotImplementedError("torch._dynamo.export: dynamic_shapes has taken the place of constraints")
    from mica._dynamo._whole_graphs import export_graph
    from mica._dynamo.external_utils import innermost_fn

    function = innermost_fn(getattr(f, "_orig_mod", f))
    dynamic = True if tracing_mode == "symbolic" and not assume_static_by_default else None

    def exported(*args, **kwargs):
        return export_graph(
            function, args, kwargs, aten_graph=aten_graph, pre_dispatch=pre_dispatch,
            decomposition_table=decomposition_table, dynamic=dynamic, dynamic_shapes=dynamic_shapes,
            same_signature=same_signature,
        )  # fmt: skip

    if extra_args or extra_kwargs:
        warnings.warn(
            "torch._dynamo.export(f, *args) is the older spelling of export(f)(*args)", FutureWarning, stacklevel=2
        )
        return exported(*extra_args, **extra_kwargs)
    return exported


def __getattr__(name):
    if name == "OptimizedModule":
        from mica._dynamo.optimized_module import OptimizedModule

        return OptimizedModule
    if name in (
        "compiled_autograd",
        "config",
        "eval_frame",
        "full_graph",
        "utils",
        "external_utils",
        "exc",
        "decorators",
        "backends",
        "testing",
    ):
        return importlib.import_module(f"mica._dynamo.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
