"""Small questions of torch._dynamo.utils that programs ask."""

import collections
import functools
import warnings


def is_compile_supported(device_type):
    """False: nothing is compiled."""
    return False


def is_namedtuple(obj):
    from mica.utils._pytree import is_namedtuple

    return is_namedtuple(obj)


@functools.lru_cache(4096)
def warn_once(msg, stacklevel=1):
    """Warn, the first time that the words are said."""
    warnings.warn(msg, stacklevel=stacklevel + 1)


counters = collections.defaultdict(collections.Counter)  # of what was compiled: nothing
