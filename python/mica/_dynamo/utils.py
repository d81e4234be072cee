"""Small questions of torch._dynamo.utils that programs ask."""

import collections


def is_compile_supported(device_type):
    """False: nothing is compiled."""
    return False


def is_namedtuple(obj):
    from mica.utils._pytree import is_namedtuple

    return is_namedtuple(obj)


counters = collections.defaultdict(collections.Counter)  # of what was compiled: nothing
