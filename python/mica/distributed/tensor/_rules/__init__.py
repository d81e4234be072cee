"""The vocabulary of `sharding` in ops/*.toml: what each word means, as a function from a call to its options.

An option is (placements of the results, placements of the inputs) along one dimension of the grid.
"""

import importlib
import threading

from mica.distributed.tensor._rules.call import Call, one_by_one  # noqa: F401

_MODULES = ("elementwise", "reduction", "products", "shape", "selection", "layers")
_words = {}
registered = {}  # operator -> the rule that a program has given it


class _Modes(threading.local):
    loss_parallel = False
    implicit_replication = 0


modes = _Modes()


def loss_is_parallel():
    return modes.loss_parallel


def implicitly_replicated():
    return modes.implicit_replication > 0


def of_program(call, args, kwargs):
    """The options of a rule that a program has registered."""
    from mica import _C
    from mica.distributed.tensor._utils import refilled

    args, kwargs = refilled(args, kwargs, call.specs)
    for outputs, inputs in registered[call.func](*args, **kwargs):
        kept = []
        for each in inputs:
            kept += each if isinstance(each, (list, tuple)) else [each]
        kept = [each for each in kept if each is not None and not isinstance(each, _C.TensorBase)]
        yield tuple(each for each in outputs if each is not None), tuple(kept)


def named(word):
    """The function of a word."""
    if not _words:
        for module in _MODULES:
            _words.update(importlib.import_module(f"mica.distributed.tensor._rules.{module}").WORDS)
    return _words[word]
