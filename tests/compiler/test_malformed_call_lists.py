"""What Python hands to the lists of calls in C, malformed."""

import abc
import collections
import functools

import mica as torch
import pytest
from mica import _C


def test_malformed_lists():
    x, name = torch.ones(2), torch.Tensor.add
    form = _C._tensor_form(torch.ones(2))
    step = (name, ((1, 0), (0, 1)), None, (1, 1, form), (), False)
    steps = _C._CallList((1, 2, (step,), (1, 1)), True)
    assert torch.equal(steps.run([x]), x + 1) and steps.run([torch.ones(3)]) is NotImplemented
    for bad in (
        (), (1,), (3, 2, (step,), (1, 1)), (1, 2, (step,), (1, 2)), (1, 2, (step[:3],), (1, 1)), (1, 2, [step], (1, 1)),
        (1, 2, ((name, ((9, 0),), None, (3, None), (), False),), (1, 1)), (1, 2, (step,), (4, ((1, 1),), ())),
        (1, 2, ((name, ((1, 0),), ("a", "b"), (3, None), (), False),), (1, 1)),
        (1, 2, ((name, ((1, 0),), (3,), (3, None), (), False),), (1, 1)),
        (1, 2, ((name, ((1, 0),), None, (0,), (7,), False),), (1, 1)),
        (1, 2, ((name, ((1, 0),), None, (1, 1, "form"), (), False),), (1, 1)),
        (-1, 2, (), (1, 1)), ("a", 2, (), (1, 1)), (1, 2, (step,), 5),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="malformed"):
            _C._CallList(bad, True)
    for bad in ([], [x, x], [1], (x,)):
        with pytest.raises(TypeError):
            steps.run(bad)
    failing = _C._CallList((1, 2, ((name, ((1, 0), (0, "text")), None, (3, None), (), False),), (1, 0)), False)
    with pytest.raises(TypeError):
        failing.run([x])
    assert (
        _C._CallList((1, 2, ((name, ((1, 0), (0, "a")), None, (3, None), (), False),), (1, 0)), True).run([x])
        is NotImplemented
    )
    unset = _C._CallList((1, 2, (), (1, 1)), True)
    with pytest.raises(RuntimeError, match="a slot that no call has filled"):
        unset.run([x])


def test_malformed_records():
    def function():
        pass

    held, ordered = {"a": 1}, collections.OrderedDict(a=1)
    cached = functools.lru_cache(function)
    good = (
        (0, held, ("a",), (1,)), (7, function, _C._function_state(function)), (11, held, ("a",), (1,)),
        (12, ordered, ("a",)), (13, int, int.__mro__), (14, abc.get_cache_token, abc.get_cache_token(), ()), (15, cached, ()),
    )  # fmt: skip
    assert _C._Snapshot(good).first_difference() == -1
    for bad in (
        (7, function, (1, 2, 3)), (7, print, _C._function_state(function)), (11, held, ("a",), ()), (11, [], ("a",), (1,)),
        (10, held, 1), (10, held, dict, 1), (12, held, ("a",)), (12, ordered, ["a"]), (13, 1, int.__mro__), (13, int, []), (14, function, 1, ()),
        (14, abc.get_cache_token, 1), (14, abc.get_cache_token, 1, []), (15, cached, (1,)), (15, 1, ()), (16, held, ()), (-1, held, ()), (0,), 1,
    ):  # fmt: skip
        with pytest.raises(TypeError, match="record 0 is malformed"):
            _C._Snapshot((bad,))
    with pytest.raises(TypeError, match="_function_state"):
        _C._function_state(print)


def test_malformed_known_calls():
    steps, snapshot = _C._CallList((1, 1, (), (1, 0)), True), _C._Snapshot(())
    form = (torch.Tensor, _C._tensor_form(torch.ones(2)))
    assert _C._KnownCall((form,), (), snapshot, steps, ()).count == 0
    for bad in (
        ((1,), (), snapshot, steps), ((form,), ("a", "b"), snapshot, steps), ((form,), (), 1, steps),
        (((int, b""),), (), snapshot, steps), ((form, form), (), snapshot, steps), (((1, 2, 3),), (), snapshot, steps),
        ((form,), (), snapshot, 1), ([form], (), snapshot, steps),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            _C._KnownCall(*bad, ())
    with pytest.raises(TypeError):
        _C._KnownCall((form,), (), snapshot, steps, [])
    call = _C._CompiledCall(torch.sin)
    for bad in (1, (1,), [1]):
        with pytest.raises(TypeError, match="a tuple of known calls"):
            call.known = bad
    for bad in ((1, 2), (print, print, [], {}), (print, print, (), ())):
        with pytest.raises(TypeError, match="_call_recorded_by"):
            _C._call_recorded_by(*bad)
