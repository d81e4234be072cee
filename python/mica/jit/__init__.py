"""The marks that programs put on what TorchScript would compile.

There is no TorchScript here: what is marked runs as the Python it is, as it does in torch when PYTORCH_JIT is 0.
"""

import builtins as _builtins
import contextlib as _contextlib
from typing import Any as _Any
from typing import Final

import mica as _mica

__all__ = [
    "Attribute", "Error", "Final", "RecursiveScriptModule", "ScriptFunction", "annotate",
    "export", "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load",
    "optimized_execution", "save", "script", "script_if_tracing", "script_method", "trace", "trace_module", "unused",
    "wait",
]  # fmt: skip


class Error(RuntimeError):
    """What a compiled program would raise."""


class ScriptFunction:
    """The type of a compiled function: nothing is one."""


class RecursiveScriptModule:
    """The type of a compiled module: nothing is one."""


class CompilationUnit:
    """Source to be compiled: there is no compiler."""

    def __init__(self, lang=None, _frames_up=0):
        raise RuntimeError("There is no TorchScript in Mica: write the functions in Python")


class TracerWarning(Warning):
    """What tracing warns of: nothing is traced."""

    @staticmethod
    def ignore_lib_warnings():
        """Does nothing: no library is compiled here, so that none can warn."""


def is_scripting():
    """False: nothing is compiled."""
    return False


def is_tracing():
    """False: nothing is traced."""
    return False


def script(obj, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """The object itself: Mica runs it as it is."""
    return obj


def trace(func, example_inputs=None, *args, **kwargs):
    """The function or module itself."""
    return func


def _get_trace_graph(f, args=(), kwargs=None, *options, **named_options):
    """The operators of a call as a graph that can be read, which is how packages count them; and what it returned."""
    from mica.jit._trace_graph import get_trace_graph

    return get_trace_graph(f, args, kwargs, *options, **named_options)


def trace_module(mod, inputs, *args, **kwargs):
    """The module itself, unchanged."""
    return mod


def script_method(fn):
    """The method itself, unchanged."""
    return fn


def script_if_tracing(fn):
    """The function itself, unchanged."""
    return fn


_script_if_tracing = script_if_tracing


def set_fusion_strategy(strategy):
    """Nothing is fused: the strategy before, none."""
    return []


def enable_onednn_fusion(enabled):
    """Does nothing: there is no oneDNN to fuse for."""


def onednn_fusion_enabled():
    return False


def optimize_for_inference(mod, other_methods=None):
    """The module itself, unchanged."""
    return mod


def fuser(name):
    """A with block in which nothing is fused."""
    return _contextlib.nullcontext()


def last_executed_optimized_graph():
    raise RuntimeError("There is no TorchScript in Mica, so there is no graph of it")


strict_fusion = _contextlib.nullcontext


def export(fn):
    """The method itself, unchanged."""
    return fn


def interface(obj):
    """The class itself, unchanged."""
    return obj


def ignore(drop=False, **kwargs):
    """The function itself, with arguments or without."""
    return drop if callable(drop) else lambda fn: fn


def unused(fn):
    """The function itself, unchanged."""
    return fn


def _overload(fn):
    """The function itself, unchanged."""
    return fn


def _overload_method(fn):
    """The method itself, unchanged."""
    return fn


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


class Future:
    """The type of what `fork` returns."""


class _Done(Future):
    def __init__(self, result):
        self._result = result

    def wait(self):
        return self._result

    def done(self):
        return True


def wait(future):
    """The result of what `fork` has called."""
    return future.wait()


@_contextlib.contextmanager
def optimized_execution(should_optimize):
    """Nothing is optimized, whatever is asked."""
    yield


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """The module itself, as `script` and `trace` hand it out; one that trains is refused, as in torch."""
    if not _builtins.isinstance(mod, _mica.nn.Module):
        raise RuntimeError("Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace")
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before "
            "freezing."
        )
    return mod


def run_frozen_optimizations(mod, optimize_numerics=True, preserved_methods=None):
    """Does nothing: the module runs as it is."""


def save(m, f, _extra_files=None):
    raise RuntimeError("There is no TorchScript in Mica, so none can be saved: save m.state_dict() with torch.save")


def load(f, map_location=None, _extra_files=None, _restore_shapes=False):
    raise RuntimeError("There is no TorchScript in Mica, so none can be loaded: load a state_dict with torch.load")


def __getattr__(name):
    # A module comes with mica.nn, which programs that only mark functions do not need.
    if name in ("_recursive", "annotations", "_script", "frontend"):
        import importlib

        return importlib.import_module(f"mica.jit.{name}")
    if name == "ScriptModule":

        class ScriptModule(_mica.nn.Module):
            """A module, as long as nothing is compiled."""

        return globals().setdefault(name, ScriptModule)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
