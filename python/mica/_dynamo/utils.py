"""Small questions of torch._dynamo.utils that programs ask."""

import collections
import contextlib
import functools
import sys
import warnings


def __getattr__(name):
    if name == "same":
        from mica._dynamo._comparison import same

        return same
    if name == "detect_fake_mode":
        from mica._guards import detect_fake_mode

        return detect_fake_mode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_compile_supported(device_type):
    """Whether kernels on a type of device are put off and run together."""
    return str(device_type).partition(":")[0] == "cpu"


@contextlib.contextmanager
def disable_cache_limit():
    """A block in which functions are compiled for as many kinds of arguments as come."""
    from mica._dynamo import config

    with config.patch(recompile_limit=sys.maxsize, accumulated_recompile_limit=sys.maxsize):
        yield


def is_namedtuple(obj):
    from mica.utils._pytree import is_namedtuple

    return is_namedtuple(obj)


@functools.lru_cache(4096)
def warn_once(msg, stacklevel=1):
    """Warn, the first time that the words are said."""
    warnings.warn(msg, stacklevel=stacklevel + 1)


class _Counters(collections.defaultdict):
    """torch's counters. The entry "mica" counts what compiled functions ran on this thread."""

    def __getitem__(self, name):
        if name == "mica":
            from mica import _C

            return collections.Counter(_C._recording_counts())
        return super().__getitem__(name)


counters = _Counters(collections.Counter)
