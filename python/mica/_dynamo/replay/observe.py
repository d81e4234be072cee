"""Observes a call: the Python functions that it runs, and those that they call and nobody can see into."""

import _abc
import sys
import types

from mica import _C


class Refused(Exception):
    """A function that cannot be replayed, and why."""


# Modules of C functions whose results depend on their arguments alone, or that affect no result.
_PLAIN_MODULES = frozenset((
    "builtins", "math", "cmath", "_operator", "_functools", "itertools", "_collections", "_abc", "_weakref", "_warnings",
    "_typing", "_struct", "_codecs", "_string", "_imp", "_thread", "gc", "sys",
))  # fmt: skip
_REFUSED = {
    "builtins": {"open", "input", "print", "exec", "breakpoint", "vars", "locals", "globals", "dir", "__import__"}
}
# Modules most of whose functions say how the process or the thread is. names.py looks at the code that asks for a frame.
_TAKEN = {
    "sys": {
        "_getframe",
        "audit",
        "exc_info",
        "exception",
        "getdefaultencoding",
        "getrecursionlimit",
        "intern",
        "is_finalizing",
    },
    "_thread": {"RLock", "allocate_lock"},
    "gc": set(),
}
_REFUSED_OF_MICA = (
    "backward", "seed", "set_state", "get_state", "clone_state", "get_offset", "set_offset", "synchronize", "_graph_",
    "_set_backend_flag", "set_num_", "set_default", "_set_determinism", "get_num_", "memory_", "print_options",
    "_swap_tensor_impl", "_set_warn_always", "_set_fill_uninitialized", "flush_denormal", "zero_grad",
    "get_default_device", "_multithreading_",
)  # fmt: skip
# Functions of Mica's that say how the thread is, with the arguments for which they are asked again. What else the thread has
# (whether gradients are recorded, the default dtype, autocast) is part of what a known call is compared by.
_SETTINGS = {
    "is_anomaly_enabled": ((),), "is_anomaly_check_nan_enabled": ((),), "_is_warn_always": ((),),
    "is_autocast_cache_enabled": ((),), "get_autocast_dtype": (("cpu",), ("cuda",)),
    "_get_cpu_allow_fp16_reduced_precision_reduction": ((),),
}  # fmt: skip
_TAKEN_OF_MICA = ("save_for_backward",)
# Functions that order the work of a GPU, or say how it is. A captured graph has that order in it, a list of calls has not.
_OF_STREAMS = frozenset((
    "_current_stream", "_set_stream", "_new_stream", "_stream_done", "_new_event", "_record_event", "_wait_event",
    "_event_done", "_free_event", "_record_stream", "record_stream", "_set_device", "_empty_cache", "_set_memory_limit",
    "_reset_peak_memory_stats", "_seed_devices",
))  # fmt: skip
_PLAIN_OWNERS = (
    str, bytes, int, float, complex, bool, list, tuple, dict, set, frozenset, range, slice, type(None), property, type,
    types.FunctionType, types.MethodType, types.GeneratorType, types.MappingProxyType, types.GenericAlias,
    type({}.keys()), type({}.values()), type({}.items()), _C.TensorBase, _C._Function,
)  # fmt: skip
_UNSAID = frozenset(("warn", "warn_explicit"))
_LOCKS = frozenset(("lock", "RLock", "_thread.lock", "_RLock"))
_ASKS_OF_LOCKS = frozenset(("acquire", "acquire_lock", "locked", "locked_lock", "_is_owned"))
_PLAIN_TYPE_NAMES = _LOCKS | {"Pattern", "Match", "_lru_cache_wrapper"}


def refusal_of(called):
    """Why a call of a C function cannot be replayed; None where it can."""
    name = getattr(called, "__name__", "?")
    owner = getattr(called, "__self__", None)
    module = owner.__name__ if isinstance(owner, types.ModuleType) else getattr(called, "__module__", None)
    if module is None and owner is not None:
        if name in _ASKS_OF_LOCKS and type(owner).__name__ in _LOCKS:
            return "it asks whether a lock is held"
        if isinstance(owner, _PLAIN_OWNERS) or type(owner).__name__ in _PLAIN_TYPE_NAMES:
            return _refusal_in_mica(name) if isinstance(owner, (_C.TensorBase, _C._Function)) else None
        module = type(owner).__module__
    module = module or ""
    if module.partition(".")[0] in ("mica", "torch"):
        return _refusal_in_mica(name)
    if module not in _PLAIN_MODULES or name in _REFUSED.get(module, ()) or name not in _TAKEN.get(module, (name,)):
        return f"it calls {module}.{name}" if module else f"it calls {name}"
    return None


def _refusal_in_mica(name):
    refused = name not in _TAKEN_OF_MICA and any(part in name for part in _REFUSED_OF_MICA)
    return f"it calls {name}" if refused else None


class Observation:
    """One call, watched: the code of each function of Python that ran, with its globals."""

    def __init__(self):
        self.codes, self.reason = {}, None
        self.calls = 0  # of functions of Python
        self.said = None  # a function that warns: a replay does without
        self.ordered_by = None  # a function that orders the work of a GPU
        self.settings = {}  # functions of C that say how the thread or the process is, with arguments to ask them again

    def run(self, function, args, kwargs):
        """Call the function. Afterwards `reason` says why such a call cannot be replayed, if it cannot."""
        if sys.getprofile() is not None:
            self.reason = "a profiler watches the program"
            return function(*args, **kwargs)
        result, self.reason, self.calls = _C._call_watched(function, args, kwargs, self.codes, self._refusal_of)
        return result

    def _refusal_of(self, called):
        name = getattr(called, "__name__", "?")
        module = getattr(called, "__module__", None)
        if name in _UNSAID and module == "_warnings":
            self.said = name
        if name in _OF_STREAMS:
            self.ordered_by = name
        if module == "_abc":  # it was asked whether a class is one of those of an abstract class
            self.settings[_abc.get_cache_token] = ((),)
        elif name in _SETTINGS and called is getattr(_C, name, None):
            self.settings[called] = _SETTINGS[name]
        return refusal_of(called)
