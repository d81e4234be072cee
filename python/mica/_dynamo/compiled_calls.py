"""Callables that run a function compiled."""

from mica import _C

CALLS_BEFORE_REPLAY = 8  # of a compiled function, before it is asked whether they can be replayed (replay/)


def compiled_call(function, fullgraph=False):
    """The function, compiled. Its calls are replayed where that is known to be right and to gain something."""
    return _C._CompiledCall(function, fullgraph, CALLS_BEFORE_REPLAY)
