"""segment_reduce: values and gradients recorded from torch 2.13."""

import math

import mica as torch
import pytest

NAN = math.nan


def reduced(reduce, initial, data, lengths, grad):
    data = torch.tensor(data, requires_grad=True)
    result = torch.segment_reduce(data, reduce, lengths=torch.tensor(lengths), axis=0, initial=initial)
    result.backward(torch.tensor(grad))
    return result.detach(), data.grad


@pytest.mark.parametrize(
    "reduce, initial, result, grad",
    [
        ("max", 1, [1, NAN, 5, 1], [1, 1, 0, 0, 0.5, 0.5]),
        ("max", 5.0, [5, NAN, 5, 5], [0, 1, 0, 0, 0.5, 0.5]),
        ("min", 1, [1, NAN, 1, 1], [1, 1, 0, 0, 0, 0]),
        ("mean", 2.0, [3, NAN, 16 / 3, 2], [1, 0.5, 0.5, 1 / 3, 1 / 3, 1 / 3]),
        ("prod", 1, [1, NAN, 100, 1], [1, 3, NAN, 25, 20, 20]),
        ("prod", 0.0, [0, NAN, 0, 0], [0, 0, NAN, 0, 0, 0]),
        ("prod", 2.0, [2, NAN, 200, 2], [2, 6, NAN, 50, 40, 40]),
    ],
)
def test_values_that_tie_with_the_initial_one_and_nan(reduce, initial, result, grad):
    got, got_grad = reduced(reduce, initial, [1.0, NAN, 3.0, 4.0, 5.0, 5.0], [1, 2, 3, 0], [1.0] * 4)
    torch.testing.assert_close(got, torch.tensor(result, dtype=torch.float32), equal_nan=True)
    torch.testing.assert_close(got_grad, torch.tensor(grad, dtype=torch.float32), equal_nan=True)


def test_several_equals_each_get_a_negative_gradient_whole():
    assert reduced("max", None, [5.0, 5.0, 3.0], [3], [-1.0])[1].tolist() == [-1, -1, 0]


def test_the_product_of_the_others_of_a_zero():
    assert reduced("prod", None, [5.0, 5.0, 0.0, 3.0], [1, 3], [1.0, 1.0])[1].tolist() == [1, 0, 15, 0]
    assert reduced("prod", None, [5.0, 0.0, 0.0, 3.0], [1, 3], [1.0, 1.0])[1].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(
    "reduce, empty", [("sum", 0), ("mean", NAN), ("max", -math.inf), ("min", math.inf), ("prod", 1)]
)
def test_nothing(reduce, empty):
    zeros = torch.zeros(2, dtype=torch.long)
    for data, shape in ((torch.ones(0), (2,)), (torch.ones(0, 3), (2, 3))):
        got = torch.segment_reduce(data, reduce, lengths=zeros)
        torch.testing.assert_close(got, torch.full(shape, float(empty)), equal_nan=True)
        assert torch.equal(torch.segment_reduce(data, reduce, lengths=zeros, initial=3), torch.full(shape, 3.0))
    assert torch.segment_reduce(torch.ones(4, 0), reduce, lengths=torch.tensor([2, 2])).shape == (2, 0)
    empty_rows = torch.zeros(0, 2, dtype=torch.long)
    assert torch.segment_reduce(torch.ones(0, 3), reduce, lengths=empty_rows, axis=1, unsafe=True).shape == (0, 2)


def test_offsets_may_begin_later_and_end_earlier():
    x = torch.arange(5.0)
    assert torch.segment_reduce(x, "sum", offsets=torch.tensor([1, 2, 5])).tolist() == [1, 9]
    assert torch.segment_reduce(x, "sum", offsets=torch.tensor([0, 2, 4])).tolist() == [1, 5]
    assert torch.segment_reduce(x, "sum", lengths=torch.tensor([1, 1]), unsafe=True).tolist() == [0, 1]


@pytest.mark.parametrize(
    "given, error, words",
    [
        ({"lengths": torch.tensor([-1, 6])}, RuntimeError, "lengths contains negative value!"),
        ({"lengths": torch.tensor([[1, 2]])}, RuntimeError, r"data.dim\(\) >= lengths_value.dim\(\)"),
        ({"lengths": torch.tensor([1.0, 4.0])}, NotImplementedError, "not implemented"),
        ({"lengths": torch.tensor([5]), "reduce": "x"}, RuntimeError, "reduce argument must be either"),
        ({"lengths": torch.tensor([5]), "axis": 1}, IndexError, "Dimension out of range"),
        ({}, RuntimeError, "Either lengths or offsets must be defined"),
    ],
)
def test_refusals(given, error, words):
    with pytest.raises(error, match=words):
        torch.segment_reduce(torch.arange(5.0), **{"reduce": "sum", **given})
