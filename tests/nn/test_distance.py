"""Distances and bags of rows: gradients of both orders and definitions. Values: test_layers_recorded.py."""

import math

import mica
import mica.nn.functional as F
import pytest
from mica import nn
from mica.autograd import gradcheck, gradgradcheck

F64 = mica.float64


def numbers(*shape):
    return mica.randn(*shape, dtype=F64).requires_grad_()


@pytest.mark.parametrize("p", [0.0, 0.7, 1.0, 1.5, 2.0, 3.0, math.inf])
def test_pdist(p):
    x = numbers(5, 3)
    pairs = [(x[i] - x[j]).norm(p) for i in range(5) for j in range(i + 1, 5)]
    mica.testing.assert_close(F.pdist(x, p), mica.stack(pairs))
    if p:
        assert gradcheck(lambda x: F.pdist(x, p), (x,))
    if p in (1.5, 2.0, 3.0):
        assert gradgradcheck(lambda x: F.pdist(x, p), (x,))


def test_equal_rows_have_no_slope():
    x = mica.ones(3, 2, requires_grad=True)
    F.pdist(x).sum().backward()
    assert x.grad.tolist() == [[0, 0]] * 3


def test_cosine_of_null_vectors():
    x, y = mica.zeros(2, 3, requires_grad=True), mica.randn(2, 3)
    F.cosine_similarity(x, y).sum().backward()
    assert F.cosine_similarity(x, y).tolist() == [0, 0] and mica.isfinite(x.grad).all()


def test_cosine_broadcasts_and_promotes():
    x, y = mica.randn(4, 1, 3), mica.randn(5, 3, dtype=F64)
    assert F.cosine_similarity(x, y, dim=-1).shape == (4, 5) and F.cosine_similarity(x, y, -1).dtype == F64


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 1])
def test_bags_are_reductions_of_embeddings(mode, padding_idx):
    table, indices = numbers(6, 4), mica.randint(0, 6, (5, 7))
    reduce = {"sum": lambda t: t.sum(0), "mean": lambda t: t.mean(0), "max": lambda t: t.amax(0)}[mode]
    expected = mica.stack([reduce(table[row[row != padding_idx] if padding_idx else row]) for row in indices])
    out = F.embedding_bag(indices, table, mode=mode, padding_idx=padding_idx)
    mica.testing.assert_close(out, expected)
    seed = mica.randn(5, 4, dtype=F64)
    ours, theirs = (mica.autograd.grad(t, table, seed)[0] for t in (out, expected))
    mica.testing.assert_close(ours, theirs)


def test_bag_weights():
    table, weights, indices = numbers(5, 3), numbers(2, 4), mica.randint(0, 5, (2, 4))

    def bag(table, weights):
        return F.embedding_bag(indices, table, mode="sum", per_sample_weights=weights)

    assert gradcheck(bag, (table, weights)) and gradgradcheck(bag, (table, weights))


def test_offsets_and_the_rest():
    table, indices = mica.randn(5, 3), mica.tensor([0, 1, 4, 2, 2])
    plain = F.embedding_bag(indices, table, mica.tensor([0, 2, 2]), mode="sum")
    mica.testing.assert_close(plain, mica.stack([table[:2].sum(0), mica.zeros(3), table[4] + 2 * table[2]]))
    last = F.embedding_bag(indices, table, mica.tensor([0, 2, 4]), mode="sum", include_last_offset=True)
    mica.testing.assert_close(last, mica.stack([table[:2].sum(0), table[4] + table[2]]))


def test_decreasing_offsets_are_an_error():
    with pytest.raises(RuntimeError, match="must not decrease"):
        F.embedding_bag(mica.tensor([0, 1, 2]), mica.randn(3, 2), mica.tensor([0, 2, 1]))


def test_frequent_rows_are_scaled():
    table = mica.zeros(3, 1, requires_grad=True)
    F.embedding_bag(
        mica.tensor([[0, 1, 1, 2], [2, 2, 2, 0]]), table, mode="sum", scale_grad_by_freq=True
    ).sum().backward()
    assert table.grad.tolist() == [[1], [1], [1]]


def test_max_norm_scales_the_table():
    table = mica.full((3, 4), 2.0)
    F.embedding_bag(mica.tensor([[0, 2]]), table, max_norm=1.0)
    assert mica.allclose(table.norm(dim=1), mica.tensor([1.0, 4.0, 1.0]))


def test_embedding_bag_from_pretrained():
    bag = nn.EmbeddingBag.from_pretrained(mica.arange(6.0).view(3, 2), mode="sum")
    assert not bag.weight.requires_grad and bag(mica.tensor([[0, 2]])).tolist() == [[4, 6]]


def test_the_gradient_of_the_largest_difference():
    """Values recorded from torch: differences that are not whole in binary have one, too."""
    inf = float("inf")
    a = mica.tensor([[0.5, -1.0, 2.0], [1.0, 0.2, -0.3]], requires_grad=True)
    b = mica.tensor([[0.1, 0.4, 3.9], [-2.0, 0.0, 1.0]], requires_grad=True)
    weight = mica.tensor([[1.0, 2.0], [3.0, 4.0]])
    by_a, by_b = mica.autograd.grad((mica.cdist(a, b, inf) * weight).sum(), [a, b])
    assert by_a.tolist() == [[2.0, 0.0, -1.0], [4.0, 0.0, -3.0]]
    assert by_b.tolist() == [[0.0, 0.0, 4.0], [-6.0, 0.0, 0.0]]
    (by_a,) = mica.autograd.grad(mica.nn.functional.pdist(a, inf).sum(), [a])
    assert by_a.tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]
