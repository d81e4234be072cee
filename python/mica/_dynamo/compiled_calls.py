"""Callables that run a function compiled."""

import importlib

from mica import _C
from mica.compiler import _running, _stance

CALLS_BEFORE_REPLAY = 8  # of a compiled function, before it is asked whether they can be replayed (replay/)


def compiled_call(function, fullgraph=False):
    """The function, compiled. Its calls are replayed where that is known to be right and to gain something.

    What replays them is imported now: a thread that imported it later would leave the child of a fork with Python's lock of
    that module.
    """
    importlib.import_module("mica._dynamo.replay")
    return _C._CompiledCall(function, fullgraph, CALLS_BEFORE_REPLAY)


def as_it_is(inner):
    """A function that calls this one, which knows that it is compiled."""
    from mica._dynamo import config

    def call(*args, **kwargs):
        if _stance.name == "force_eager" or config.disable:
            return inner(*args, **kwargs)
        return _running.call(inner, args, kwargs)

    return call
