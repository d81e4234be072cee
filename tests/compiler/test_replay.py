"""Replayed functions without a GPU: everything but the graphs themselves, which run the function again here."""

import contextlib
import threading

import mica as torch
import pytest
from mica._dynamo.replay import Replayed
from replay_objects import CASES


class Again:
    """What stands for a graph: the function itself, called again, with its results written where the first ones were."""

    lock = threading.RLock()

    @staticmethod
    def takes(device):
        return True

    @staticmethod
    def is_busy():
        return False

    @classmethod
    @contextlib.contextmanager
    def in_turn(cls):
        with cls.lock:
            yield

    @staticmethod
    def capture(run):
        value, first = run(), [True]

        def replay():
            if first:
                return first.clear()  # the capture ran it already
            for old, new in zip(tensors_of(value), tensors_of(run()), strict=True):
                if old is not new:
                    old.copy_(new)

        return replay, value


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    inner = [*inner, *vars(value).values()] if hasattr(value, "__dict__") and not callable(value) else inner
    return [tensor for each in inner for tensor in tensors_of(each)]


@pytest.mark.parametrize("case", CASES)
def test_replay(case):
    CASES[case](lambda function: Replayed(function, torch._C._CompiledCall(function, False), Again), "cpu")


def test_what_is_said_of_it():
    function = Replayed(
        lambda x: print(end="") or x * 2, torch._C._CompiledCall(lambda x: print(end="") or x * 2), Again
    )
    for _ in range(6):
        function(torch.ones(3))
    assert str(function) == "replay: 0 graphs for arguments of 1 kinds; not replayed: it calls builtins.print"
    function.forget()
    assert str(function) == "replay: 0 graphs for arguments of 0 kinds"


def test_arguments_that_cannot_be_taken():
    function = Replayed(torch.sin, torch._C._CompiledCall(torch.sin), Again)
    for x in (torch.eye(2).to_sparse(), torch.ones(2).as_subclass(type("Other", (torch.Tensor,), {}))):
        for _ in range(6):
            assert torch.equal(function(x).to_dense(), torch.sin(x.to_dense()))
    assert not any(kind.graphs for kind in function._kinds.values())
