"""The graph of pipes behind a pipe."""

import io
import pickle
import warnings
from collections.abc import Collection

from mica.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = ["traverse", "traverse_dps"]

DataPipe = IterDataPipe | MapDataPipe


def _stub():
    """Stands for a connected pipe in a pickle that is made only to find connected pipes."""


def _only_connections(state):
    """The members of a pipe's state that may hold pipes."""
    kinds = (IterDataPipe, MapDataPipe, Collection)
    if isinstance(state, dict):
        return {key: value for key, value in state.items() if isinstance(value, kinds)}
    if isinstance(state, (tuple, list)):
        return [value for value in state if isinstance(value, kinds)]
    return state if isinstance(state, kinds) else None


def _connected(pipe, only_datapipe, seen):
    """The pipes that a pipe holds, found by pickling it: what holds what is told by the pipes' own states."""
    found = []

    def capture(each):
        if each is pipe or id(each) in seen:
            raise NotImplementedError
        found.append(each)
        seen.add(id(each))
        return _stub, ()

    bases = (IterDataPipe, MapDataPipe)
    try:
        for base in bases:
            base.set_reduce_ex_hook(capture)
            if only_datapipe:
                base.set_getstate_hook(_only_connections)
        try:
            pickle.Pickler(io.BytesIO()).dump(pipe)
        except (pickle.PickleError, AttributeError, TypeError):
            try:
                import dill
            except ImportError:
                dill = None
            if dill is None:
                raise
            found.clear()
            dill.Pickler(io.BytesIO()).dump(pipe)
            dill.extend(False)
    finally:
        for base in bases:
            base.set_reduce_ex_hook(None)
            if only_datapipe:
                base.set_getstate_hook(None)
    return found


def _graph(pipe, only_datapipe, seen):
    if not isinstance(pipe, (IterDataPipe, MapDataPipe)):
        raise RuntimeError(f"Expected `IterDataPipe` or `MapDataPipe`, but {type(pipe)} is found")
    if id(pipe) in seen:
        return {}
    seen = seen | {id(pipe)}
    below = {}
    for each in _connected(pipe, only_datapipe, set(seen)):
        below.update(_graph(each, only_datapipe, seen))
    return {id(pipe): (pipe, below)}


def traverse_dps(datapipe):
    """{id: (pipe, graph of the pipes that it reads from)}, looking at members that are pipes or collections."""
    return _graph(datapipe, True, set())


def traverse(datapipe, only_datapipe=None):
    """The older traverse_dps, which looks at all members unless told otherwise."""
    message = "`traverse` function is deprecated and will be removed after 1.13. Please use `traverse_dps` instead."
    if not only_datapipe:
        message += " And, the behavior will be changed to the equivalent of `only_datapipe=True`."
    warnings.warn(message, FutureWarning, stacklevel=2)
    return _graph(datapipe, bool(only_datapipe), set())
