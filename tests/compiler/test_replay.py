"""Replayed functions without a GPU: everything but the graphs themselves, which run the function again here."""

import contextlib
import sys
import threading

import mica as torch
import pytest
from mica._dynamo.replay import Replayed
from mica._dynamo.replay.call_lists import CallLists
from mica._dynamo.replay.cuda_graphs import StaticGraphs
from replay_objects import CASES


class Again(StaticGraphs):
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


class Lists(CallLists):
    fewest_calls = 0


@pytest.mark.parametrize("way", [Again, Lists])
@pytest.mark.parametrize("case", CASES)
def test_replay(case, way):
    CASES[case](lambda function: Replayed(function, torch._C._CompiledCall(function, False), (way,)), "cpu")


def test_what_is_said_of_it():
    function = Replayed(
        lambda x: print(end="") or x * 2, torch._C._CompiledCall(lambda x: print(end="") or x * 2), (Again,)
    )
    for _ in range(6):
        function(torch.ones(3))
    assert str(function) == "replay: 0 graphs for arguments of 1 kinds; not replayed: it calls builtins.print"
    function.forget()
    assert str(function) == "replay: 0 graphs for arguments of 0 kinds"


def test_arguments_that_cannot_be_taken():
    function = Replayed(torch.sin, torch._C._CompiledCall(torch.sin), (Again,))
    for x in (torch.eye(2).to_sparse(), torch.ones(2).as_subclass(type("Other", (torch.Tensor,), {}))):
        for _ in range(6):
            assert torch.equal(function(x).to_dense(), torch.sin(x.to_dense()))
    assert not any(kind.graphs for kind in function._kinds.values())


def test_another_kind_is_captured_in_its_second_call():
    function = Replayed(torch.sin, torch._C._CompiledCall(torch.sin), (Again,))
    for _ in range(5):
        function(torch.ones(3))
    assert sum(len(kind.graphs) for kind in function._kinds.values()) == 1
    assert torch.equal(function(torch.ones(4)), torch.ones(4).sin())
    assert sum(len(kind.graphs) for kind in function._kinds.values()) == 1
    assert torch.equal(function(torch.ones(4)), torch.ones(4).sin())
    assert sum(len(kind.graphs) for kind in function._kinds.values()) == 2


def key_of(*args, **kwargs):
    tensors, objects = [], []
    types = (torch.Tensor,), (type(None), bool, int, float, str)
    return torch._C._call_key(args, kwargs, *types, tensors, objects), tensors, objects


def test_keys_of_arguments():
    x, y, other = torch.ones(2, 3), torch.zeros(2, 3), object()
    key, tensors, objects = key_of(x, [1, {"a": other}], b=(x, None))
    assert [id(each) for each in tensors] == [id(x)] and objects == [other]
    assert key == key_of(y, [1, {"a": other}], b=(y, None))[0] and hash(key) == hash(
        key_of(y, [1, {"a": other}], b=(y, None))[0]
    )
    unlike = [
        key_of(x, [1, {"a": other}], b=(y, None)), key_of(x, [True, {"a": other}], b=(x, None)),
        key_of(x, [1, {"a": object()}], b=(x, None)), key_of(x, (1, {"a": other}), b=(x, None)),
        key_of(x.T.contiguous().T, [1, {"a": other}], b=(x, None)), key_of(x.double(), [1, {"a": other}], b=(x, None)),
        key_of(x.requires_grad_(), [1, {"a": other}], b=(x, None)), key_of(x.flatten(), [1, {"a": other}], b=(x, None)),
        key_of(x, [1, {"c": other}], b=(x, None)), key_of(x, [1.0, {"a": other}], b=(x, None)),
    ]  # fmt: skip
    assert all(each[0] is not None and each[0] != key for each in unlike)
    assert key_of(float("nan"))[0] == key_of(float("nan"))[0] != key_of("nan")[0]
    assert key_of(0.0)[0] != key_of(-0.0)[0] and key_of(0j)[0] != key_of(-0j)[0] and key_of(1j)[0] == key_of(1j)[0]
    assert (
        key_of(torch.eye(2).to_sparse())[0] is None and key_of([torch.ones(2, dtype=torch.complex64).conj()])[0] is None
    )
    assert key_of(torch.nn.Parameter(x.detach()))[0] is None
    endless = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        key_of(endless)
    for bad in (
        (),
        (1, 2, (), (), []),
        ((), {}, (int,), (), [], []),
        ((), {}, [], (), [], []),
        ((), {}, (), (), (), []),
    ):
        with pytest.raises(TypeError, match=r"_call_key\(\) takes"):
            torch._C._call_key(*bad)


def test_the_first_difference_of_many_records():
    dicts = [{"a": i} for i in range(100)]
    records = [(0, each, tuple(each), tuple(each.values())) for each in dicts]
    records += [(4, dicts[7], "a", 7), (1, [1, 2], (1, 2)), (1, (1, 2), (1, 2)), (6, {1}, (1,))]
    snapshot = torch._C._Snapshot(tuple(records))
    assert snapshot.first_difference() == -1 and snapshot.first_difference() == -1
    dicts[60]["a"] = -1
    records[-1][1].clear()
    assert snapshot.first_difference() == 60
    dicts[7]["b"] = 0
    assert snapshot.first_difference() == 7
    del dicts[7]["b"]
    dicts[60]["a"] = 60
    assert snapshot.first_difference() == len(records) - 1
    records[-1][1].add(1)
    assert snapshot.first_difference() == -1
    held = {"a": 0.0, "b": float("nan")}
    snapshot = torch._C._Snapshot(((0, held, tuple(held), tuple(held.values())),))
    held.update(a=1.0 - 1.0, b=float("nan"))
    assert snapshot.first_difference() == -1
    held["a"] = -0.0
    assert snapshot.first_difference() == 0


def test_a_call_that_is_watched():
    def refusal_of(called):
        seen.append(called.__name__)
        return "print" if called is print else None

    def inner(x):
        return len(x) + len(x) + len("".upper()) + len("a".upper())

    seen, codes = [], {}
    assert torch._C._call_watched(inner, ([1],), {}, codes, refusal_of) == (3, None, 1)
    assert codes == {inner.__code__: globals()} and seen == ["len", "upper"] and sys.getprofile() is None
    result, reason, calls = torch._C._call_watched(lambda: (print(end=""), len("")), (), {}, {}, refusal_of)
    assert result == (None, 0) and reason == "print" and calls >= 1
    for function, error in ((lambda: 1 // 0, ZeroDivisionError), (lambda: len(1), TypeError)):
        with pytest.raises(error):
            torch._C._call_watched(function, (), {}, {}, refusal_of)
        assert sys.getprofile() is None
    with pytest.raises(KeyError):
        torch._C._call_watched(inner, ([1],), {}, {}, {}.__getitem__)
    assert sys.getprofile() is None
    with pytest.raises(TypeError, match=r"_call_watched\(\) takes"):
        torch._C._call_watched(inner)


def test_places_and_counts_of_changes():
    x = torch.arange(4.0)
    assert torch._C._storage_address(x[2:]) == x.data_ptr() == x.untyped_storage().data_ptr()
    assert torch._C._storage_address(torch.empty(2, device="meta")) == 0
    before = x._version
    assert torch._C._count_changes([x, x]) is None and x._version == before + 2
    for function, value in (
        (torch._C._storage_address, 1),
        (torch._C._count_changes, (x,)),
        (torch._C._count_changes, [1]),
    ):
        with pytest.raises(TypeError, match="takes a"):
            function(value)
