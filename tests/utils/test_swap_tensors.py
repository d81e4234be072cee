"""Two tensor objects exchange what they stand for."""

import gc
import weakref

import mica
import pytest
from mica.utils import swap_tensors


def test_data_types_and_attributes_change_places():
    a, b = mica.nn.Parameter(mica.ones(2)), mica.zeros(3, dtype=mica.float64)
    a.note, a.grad = "mine", mica.full((2,), 5.0)
    first, second = id(a), id(b)
    swap_tensors(a, b)
    assert (id(a), id(b)) == (first, second)
    assert type(a) is mica.Tensor and a.shape == (3,) and a.dtype is mica.float64 and not hasattr(a, "note")
    assert type(b) is mica.nn.Parameter and b.tolist() == [1, 1] and b.note == "mine" and b.grad.tolist() == [5, 5]
    (b * 2).sum().backward()
    assert b.grad.tolist() == [7, 7]
    swap_tensors(a, b)
    assert type(a) is mica.nn.Parameter and type(b) is mica.Tensor
    del a, b
    gc.collect()


def test_many_swaps_leave_nothing_behind():
    keep = []
    for i in range(300):
        a, b = mica.nn.Parameter(mica.full((4,), float(i))), mica.full((4,), -1.0)
        b.around = [b]
        swap_tensors(a, b)
        keep = [a, b, *keep[:6]]
    assert keep[1].tolist() == [299.0] * 4 and keep[0].around[0] is keep[1]
    del keep, a, b
    gc.collect()


def test_refusals():
    a, b = mica.ones(1), mica.ones(1)
    seen = weakref.ref(a)
    with pytest.raises(RuntimeError, match="Cannot swap t1 because it has weakref"):
        swap_tensors(a, b)
    assert seen() is a
    with pytest.raises(TypeError):
        swap_tensors(b, 3)


def test_assertions_of_tensors():
    mica._assert_async(mica.tensor(2))
    with pytest.raises(RuntimeError, match="Expected Tensor with single nonzero value, but got zero"):
        mica._assert_async(mica.tensor(0))
    with pytest.raises(RuntimeError, match="^no$"):
        mica._assert_async(mica.tensor(False), "no")


def test_a_program_may_change_the_type_of_a_tensor():
    for _ in range(200):
        p, t = mica.nn.Parameter(mica.ones(3)), mica.ones(3)
        p.__class__, t.__class__ = mica.Tensor, mica.nn.Parameter
        del p, t
    gc.collect()
    assert mica.ones(3).tolist() == [1, 1, 1]
