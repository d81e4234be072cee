"""TorchScript's names. No program is made yet: what `script` and `trace` return runs as Python, and says so in its type.

The marks that programs put on functions are in mica/_jit_internal.py.
"""

import builtins as _builtins
import contextlib as _contextlib
from typing import Any as _Any

import mica as _mica
from mica._jit_internal import (  # noqa: F401
    Final,
    Future,
    _overload,
    _overload_method,
    export,
    ignore,
    is_scripting,
    is_tracing,
    unused,
)
from mica.jit import _python_programs as _programs

__all__ = [
    "Attribute", "Error", "Final", "RecursiveScriptModule", "ScriptFunction", "annotate",
    "export", "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load",
    "optimized_execution", "save", "script", "script_if_tracing", "script_method", "trace", "trace_module", "unused",
    "wait",
]  # fmt: skip


class Error(RuntimeError):
    """The error of TorchScript's programs, for programs that catch it. Mica compiles none and does not raise it."""


class ScriptFunction:
    """The type of a compiled function. No object has it, because nothing is compiled."""


class RecursiveScriptModule:
    """The type of a compiled module. No object has it, because nothing is compiled."""


class CompilationUnit:
    """Source that TorchScript would compile. Mica has no such compiler, and refuses it."""

    def __init__(self, lang=None, _frames_up=0):
        raise RuntimeError("There is no TorchScript in Mica: write the functions in Python")


class TracerWarning(Warning):
    """The class of TorchScript's warnings about traces. Mica traces nothing and does not give it."""

    @staticmethod
    def ignore_lib_warnings():
        """Does nothing: no library is compiled here, so that none can warn."""


def script(obj, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """The function or module, as one that runs as Python: its type says so, and it has no graph and no code.

    That no program is made is told once (the logger torch.jit). Classes are returned as they are, as in torch.
    """
    if _builtins.isinstance(obj, (_programs.PythonFunction, _programs.PythonModule)):
        return obj
    if _builtins.isinstance(obj, type):
        if issubclass(obj, _mica.nn.Module):
            raise RuntimeError(
                f"Type '{obj}' cannot be compiled since it inherits from nn.Module, consider passing an instance instead"
            )
        return obj
    _programs.say_once()
    if _builtins.isinstance(obj, _mica.nn.Module):
        return _programs.as_python(obj)
    if not callable(obj):
        raise NotImplementedError(f"torch.jit.script of {type(obj)}: there is no TorchScript in Mica yet")
    return _programs.PythonFunction(obj)


def trace(func, example_inputs=None, *options, example_kwarg_inputs=None, **named_options):
    """The function or module, as one that runs as Python: branches are taken by each call's inputs, not by the example's."""
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("example_kwarg_inputs should be a dict")
    return script(func)


def _get_trace_graph(f, args=(), kwargs=None, *options, **named_options):
    """The operators of a call as a graph that can be read, which is how packages count them; and what it returned."""
    from mica.jit._trace_graph import get_trace_graph

    return get_trace_graph(f, args, kwargs, *options, **named_options)


def trace_module(mod, inputs, *options, **named_options):
    """The module, as one that runs as Python."""
    if not _builtins.isinstance(inputs, dict):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    return script(mod)


def script_method(fn):
    """The method itself: a ScriptModule runs as Python."""
    return fn


def script_if_tracing(fn):
    """The function itself: it would be compiled within a trace alone, and nothing is traced."""
    return fn


_script_if_tracing = script_if_tracing


_strategy, _onednn = [("STATIC", 2), ("DYNAMIC", 10)], False


def set_fusion_strategy(strategy):
    """Keep how often a program would be compiled for other sizes; returns what was kept before."""
    global _strategy
    before, _strategy = _strategy, list(strategy)
    return before


def enable_onednn_fusion(enabled):
    """Keep whether programs would use oneDNN."""
    global _onednn
    _onednn = bool(enabled)


def onednn_fusion_enabled():
    return _onednn


def _check_module(mod, what):
    if not _builtins.isinstance(mod, _programs.PythonModule):
        raise RuntimeError(f"{what} expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace")


def optimize_for_inference(mod, other_methods=None):
    """The module from script or trace: it runs as Python, and nothing is there to optimize."""
    _check_module(mod, "optimize_for_inference")
    return freeze(mod.eval()) if mod.training else mod


def fuser(name):
    """A with block that names a fuser. It has no effect, because no program is compiled."""
    if name not in ("fuser0", "fuser1", "fuser2", "fuser3", "none"):
        raise Exception(f"unrecognized fuser option (name: {name})")
    return _contextlib.nullcontext()


def last_executed_optimized_graph():
    raise RuntimeError("There is no TorchScript in Mica, so there is no graph of it")


class strict_fusion(_contextlib.AbstractContextManager):
    """A with block in which a program would have to be fused: it is of use within one alone, as in torch."""

    def __init__(self):
        import warnings

        warnings.warn("Only works in script mode", stacklevel=2)

    def __exit__(self, *exception):
        return None


def interface(obj):
    """The class itself: it says which methods a program would need."""
    return obj


def _unwrap_optional(x):
    """The value, which is not None."""
    if x is None:
        raise AssertionError("Unwrapping null optional")
    return x


def annotate(the_type, the_value):
    """The value itself; its annotation is not used."""
    return the_value


def Attribute(value, type):
    """The value itself; its annotation is not used."""
    return value


def isinstance(obj, target_type):
    """Whether the object is of the type, or, for a type such as List[int], all of its elements are."""
    import typing

    origin, arguments = typing.get_origin(target_type), typing.get_args(target_type)
    if _builtins.isinstance(target_type, tuple):
        return any(isinstance(obj, each) for each in target_type)
    if target_type is _Any:
        return True
    if origin is None:
        return _builtins.isinstance(obj, target_type)
    if origin is typing.Union:
        return any(isinstance(obj, each) for each in arguments)
    if not _builtins.isinstance(obj, origin):
        return False
    if origin is dict:
        return all(isinstance(key, arguments[0]) and isinstance(value, arguments[1]) for key, value in obj.items())
    if origin is tuple:
        return len(obj) == len(arguments) and all(map(isinstance, obj, arguments))
    return all(isinstance(each, arguments[0]) for each in obj)


def fork(func, *args, **kwargs):
    """Call the function; `wait` hands out its result."""
    return _Done(func(*args, **kwargs))


class _Done(Future):
    def __init__(self, result):
        self._result = result

    def wait(self):
        return self._result

    def done(self):
        return True


_fork = fork


def wait(future):
    """The result of what `fork` has called."""
    if future is None:
        raise RuntimeError("Future can't be None")
    return future.wait()


_wait = wait


@_contextlib.contextmanager
def optimized_execution(should_optimize):
    """A with block without an effect: nothing is optimized."""
    yield


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """The module from script or trace; one that trains is refused, as in torch."""
    _check_module(mod, "Freezing")
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before "
            "freezing."
        )
    return mod


def run_frozen_optimizations(mod, optimize_numerics=True, preserved_methods=None):
    """Does nothing: a module that runs as Python has no program to change."""
    _check_module(mod, "run_frozen_optimizations")


def save(m, f, _extra_files=None):
    raise RuntimeError("There is no TorchScript in Mica, so none can be saved: save m.state_dict() with torch.save")


def load(f, map_location=None, _extra_files=None, _restore_shapes=False):
    raise RuntimeError("There is no TorchScript in Mica, so none can be loaded: load a state_dict with torch.load")


def __getattr__(name):
    # A module comes with mica.nn, which programs that only mark functions do not need.
    if name in ("_recursive", "_state", "annotations", "_script", "frontend"):
        import importlib

        return importlib.import_module(f"mica.jit.{name}")
    if name == "ScriptModule":

        class ScriptModule(_mica.nn.Module):
            """A module whose methods would be compiled: it runs as Python, which is told once."""

            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                _programs.say_once()

        return globals().setdefault(name, ScriptModule)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
