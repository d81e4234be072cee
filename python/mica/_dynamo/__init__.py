"""Compilation of Python functions: `compile`. What is compiled runs as Python, and its kernels run together:
docs/compiler.md."""

import contextlib
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
    backend="inductor", *, nopython=False, error_on_graph_break=None, guard_export_fn=None, guard_fail_fn=None,
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


def graph_break(msg=""):
    """Run the calls that were put off, where torch would end its graph. Within functions of allow_in_graph nothing ends."""
    if _running.is_opaque():
        return
    capture = sys.modules.get("mica._dynamo.capture")
    if capture is not None and (now := capture.active()) is not None:
        now.flush(f"Call to `torch._dynamo.graph_break()`{': ' + msg if msg else ''}")
    _C._flush_recording()


def step_unsupported(msg=""):
    """The same as graph_break. What comes after it is compiled, too."""
    graph_break(msg)


class error_on_graph_break(contextlib.ContextDecorator):
    """Say whether a break of a captured graph is an error, in a with block or in the functions that this decorates.

    With fullgraph=True breaks are errors anyway.
    """

    def __init__(self, error_on_graph_break):
        if not isinstance(error_on_graph_break, bool):
            raise TypeError(f"error_on_graph_break takes a bool, not {type(error_on_graph_break).__name__}")
        self._wanted, self._before = error_on_graph_break, []

    def __enter__(self):
        from mica._dynamo._capture_names import let_breaks_be_errors

        self._before.append(let_breaks_be_errors(self._wanted))

    def __exit__(self, *exception):
        from mica._dynamo._capture_names import let_breaks_be_errors

        let_breaks_be_errors(self._before.pop())


_BreaksAreErrors = error_on_graph_break


def _same(function=None, *args, **kwargs):
    return function if callable(function) else lambda fn: fn


def disable_nested_graph_breaks(fn=None):
    """The function itself: a break within a function that is called ends no graph of its caller's here."""
    return _same(fn)


def patch_dynamo_config(arg1=None, arg2=None, **kwargs):
    """Have other settings of torch._dynamo.config in a with block or a decorated function."""
    from mica._dynamo import config

    return config.patch(arg1, arg2, **kwargs)


def is_dynamo_disable_recursive(method):
    """Whether torch.compiler.disable was told to include the functions that this one calls; None for a function that was
    not disabled."""
    return getattr(method, "_torchdynamo_disable_recursive", None)


forbid_in_graph = run = skip_frame = dont_skip_tracing = _same


def nonstrict_trace(traceable_fn):
    """A function that calls this one, which torch has as one call of a graph: breaks within it are no error."""
    if not callable(traceable_fn):
        raise AssertionError("nonstrict_trace expects a callable")

    @functools.wraps(traceable_fn)
    def traced(*args, **kwargs):
        return traceable_fn(*args, **kwargs)

    _running.mark_opaque(traced)
    return traced


def disallow_in_graph(fn):
    """Keep a function of torch's out of graphs: a graph ends before it. Or take back what allow_in_graph has said of one."""
    from mica._dynamo import _capture_names

    if isinstance(fn, (list, tuple)):
        return [disallow_in_graph(each) for each in fn]
    if not callable(fn):
        raise AssertionError("disallow_in_graph expects a callable")
    if _running.unmark_opaque(fn):
        return fn
    if not _capture_names.is_of_torch(fn):
        raise RuntimeError(
            "disallow_in_graph is expected to be used on an already allowed callable (like torch.* ops). "
            "Use disallow_in_graph(fn) for functions of torch, and torch.compiler.disable(fn) for others"
        )
    _capture_names.disallowed.add(fn)
    return fn


def mark_dynamic(t, index, *, hint_override=None, min=None, max=None, specialize_on=None):
    """Mark one or several sizes of a tensor, so that graphs leave them open."""
    for axis in _marked(t, index, "_dynamo_dynamic_indices"):
        vars(t).setdefault("_dynamo_dynamic_range", {})[axis] = (min, max)


def maybe_mark_dynamic(t, index):
    """Mark one or several sizes of a tensor, so that graphs may leave them open. Where the code needs a number, it gets one."""
    _marked(t, index, "_dynamo_weak_dynamic_indices")


def mark_unbacked(t, index, *, hint_override=None, strict=False, specialize_on=None, shape_id=None):
    """Mark sizes as maybe_mark_dynamic does. A branch on such a size goes the way that it goes in this call."""
    _marked(t, index, "_dynamo_weak_dynamic_indices")
    _marked(t, index, "_dynamo_unbacked_indices")


def mark_static(t, index=None):
    """Mark one, several or all sizes of a tensor, so that they are numbers in graphs.

    A class of modules is returned as it is: numbers that its objects have are numbers in graphs anyway.
    """
    if isinstance(t, _C.TensorBase):
        _marked(t, range(t.dim()) if index is None else index, "_dynamo_static_indices")
        return None
    from mica.nn import Module

    if not (isinstance(t, type) and issubclass(t, Module)):
        raise TypeError(f"mark_static expects a tensor/nn.Module class but received {type(t)}")
    t._dynamo_marked_static = True
    return t


def _marked(tensor, index, kind):
    axes = [axis % tensor.dim() for axis in ([index] if isinstance(index, int) else index)]
    vars(tensor).setdefault(kind, set()).update(axes)
    return axes


def mark_static_address(t, guard=True):
    """Does nothing: a graph does not depend on where a tensor lies."""


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
