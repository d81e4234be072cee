"""Operators that few programs name (mica._operators.rare), against what they are made of."""

import math

import mica as torch
import pytest


def test_safe_softmax_of_nothing_is_zero_with_a_gradient():
    x = torch.tensor([[1.0, -math.inf], [-math.inf, -math.inf]], dtype=torch.float64, requires_grad=True)
    y = torch.ops.aten._safe_softmax.default(x, -1)
    assert y.tolist() == [[1.0, 0.0], [0.0, 0.0]]
    (grad,) = torch.autograd.grad(y[0, 0] + y[1, 1], x)
    assert not grad.isnan().any()


def test_softmax_backward():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    y, g = x.softmax(1), torch.randn(3, 4, dtype=torch.float64)
    (expected,) = torch.autograd.grad(y, x, g)
    torch.testing.assert_close(torch._softmax_backward_data(g, y.detach(), 1, torch.float64), expected)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segment_reduce(reduce):
    data = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([[2, 0, 4], [1, 3, 2]])
    got = torch.segment_reduce(data, reduce, lengths=lengths, axis=1, initial=0.5)
    assert got.shape == (2, 3, 3)
    name = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    for b in range(2):
        begin = 0
        for s, n in enumerate(lengths[b].tolist()):
            piece = torch.cat([data[b, begin : begin + n], data.new_full((1, 3), 0.5)])
            expected = getattr(piece, name)(0) if reduce != "mean" else piece.sum(0) / max(n, 1)
            torch.testing.assert_close(got[b, s], expected)
            begin += n
    offsets = torch.nn.functional.pad(lengths.cumsum(1), (1, 0))
    assert torch.equal(torch.segment_reduce(data, reduce, offsets=offsets, axis=1, initial=0.5), got)
    full = torch.tensor([[2, 1, 3], [1, 3, 2]])
    assert torch.autograd.gradcheck(lambda d: torch.segment_reduce(d, reduce, lengths=full, axis=1), (data,))
    with pytest.raises(RuntimeError, match="Expected all rows of lengths"):
        torch.segment_reduce(data, reduce, lengths=lengths + 1, axis=1)


def test_chunk_cat():
    a, b = torch.arange(5.0), torch.arange(4.0) + 10
    assert torch._chunk_cat([a, b], 0, 2).tolist() == [[0, 1, 2, 10, 11], [3, 4, 0, 12, 13]]


def test_hash_is_the_exclusive_or_of_bits():
    x = torch.tensor([[3, 5, 6], [1, 1, 1]])
    assert torch.hash_tensor(x).tolist() == 3 ^ 5 ^ 6 ^ 1
    assert torch.hash_tensor(x, 1, keepdim=True).tolist() == [[3 ^ 5 ^ 6], [1]]
    assert torch.hash_tensor(torch.tensor(2.0)).tolist() == 0x4000000000000000


def test_masked_index_forgives_places_outside():
    x = torch.arange(4.0)
    index, mask = torch.tensor([0, 9, 2]), torch.tensor([True, False, True])
    assert torch._unsafe_masked_index(x, mask, [index], -1.0).tolist() == [0, -1, 2]
    added = torch._unsafe_masked_index_put_accumulate(x, mask, [index], torch.full((3,), 10.0))
    assert added.tolist() == [10, 1, 12, 3]


def test_native_dropout():
    torch.manual_seed(0)
    x = torch.ones(1000)
    kept, mask = torch.native_dropout(x, 0.25, True)
    assert torch.equal(kept != 0, mask) and kept.max().item() == pytest.approx(4 / 3)
    assert torch.equal(torch.native_dropout_backward(x, mask, 4 / 3), kept)
    assert torch.native_dropout(x, 0.25, False)[1].all()


def test_what_torch_has_removed_says_what_to_use():
    with pytest.raises(RuntimeError, match=r"is now removed. Use torch.linalg.eigh"):
        torch.symeig(torch.eye(2))


def test_max_pool2d_backward():
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    y, indices = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    g = torch.randn_like(y)
    (expected,) = torch.autograd.grad(y, x, g)
    got = torch.ops.aten.max_pool2d_with_indices_backward(g, x.detach(), [2, 2], [2, 2], [0, 0], [1, 1], False, indices)
    assert torch.equal(got, expected)


def test_bytes_that_are_no_ones_count_once():
    x = torch.tensor([[5, 0], [7, 9]], dtype=torch.uint8)
    assert torch.count_nonzero(x[:, 0]).item() == 2 and torch.any(x[1:, 1:]).item() == 1
    assert torch.any(torch.tensor(5, dtype=torch.uint8)).item() == 1 and torch.all(x[:, 0]).item() == 1


def test_norms_of_nothing_and_the_nuclear_norm():
    for order in (1, 2, math.inf):
        assert torch.linalg.norm(torch.empty(0, 5), order, keepdim=True).tolist() == [[0]]
        assert torch.linalg.norm(torch.empty(5, 0), order).item() == 0
    assert torch.norm(torch.tensor([[3.0, 0], [0, 4]]), p="nuc").item() == pytest.approx(7)
    assert torch.linalg.vander(torch.tensor(3.0), N=3).tolist() == [[1, 3, 9]]
    assert torch.special.hermite_polynomial_h(torch.tensor(2.0), torch.tensor(-0.5)).item() == 1


def test_methods_that_few_programs_call():
    x = torch.arange(6.0)
    assert x.hash_tensor().item() == torch.hash_tensor(x).item() and x.const_data_ptr() == x.data_ptr()
    assert x.module_load(torch.ones(6)).tolist() == [1] * 6 == x.tolist() and not x.is_distributed()
    y = torch.ones(6)
    assert y.module_load(x, assign=True).data_ptr() == x.data_ptr()
    with pytest.warns(UserWarning, match="non-inplace resize_as is deprecated"):
        assert x.resize_as(torch.ones(2, 3)).shape == (2, 3)
    sparse = torch.sparse_coo_tensor(size=(0, 3))
    assert sparse.resize_as_sparse_(torch.eye(2).to_sparse()).shape == (2, 2)
    for error, words, call in (
        (RuntimeError, "deprecated since version 1.9 and is now removed", x.eig),
        (RuntimeError, "sparse_resize_ expected sparse", lambda: x.resize_as_sparse_(sparse)),
        (NotImplementedError, "aten::to_padded_tensor", lambda: x.to_padded_tensor(0.0)),
        (AssertionError, "not compiled with XPU", x.xpu),
        (RuntimeError, "was removed", lambda: x.reinforce(1)),
    ):
        with pytest.raises(error, match=words):
            call()


def _gradient(function, x, g):
    (expected,) = torch.autograd.grad(function(x.requires_grad_()), x, g)
    return expected


@pytest.mark.parametrize("dims", [2, 3])
def test_gradients_of_averages_by_name(dims):
    x = torch.randn(2, 3, *[7] * dims, dtype=torch.float64)
    pool = getattr(torch.nn.functional, f"avg_pool{dims}d")
    rest = ([3] * dims, [2] * dims, [1] * dims, False, True, None)
    g = torch.randn_like(pool(x, *rest))
    got = getattr(torch.ops.aten, f"avg_pool{dims}d_backward")(g, x, *rest)
    torch.testing.assert_close(got, _gradient(lambda x: pool(x, *rest), x, g))
    with pytest.raises(RuntimeError, match="must have its shape"):
        getattr(torch.ops.aten, f"avg_pool{dims}d_backward")(g[:1], x, *rest)


@pytest.mark.parametrize("name, mode", [("reflection", "reflect"), ("replication", "replicate")])
def test_gradients_of_borders_by_name(name, mode):
    x, padding = torch.randn(2, 3, 5, 4, dtype=torch.float64), (1, 2, 3, 1)
    g = torch.randn(2, 3, 9, 7, dtype=torch.float64)
    got = getattr(torch.ops.aten, f"{name}_pad2d_backward")(g, x, padding)
    torch.testing.assert_close(got, _gradient(lambda x: torch.nn.functional.pad(x, padding, mode), x, g))


def test_gradients_of_a_loss_and_of_a_size_by_name():
    x, target = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 2, 1, 2])
    for reduction, how in enumerate(("none", "mean", "sum")):
        g = torch.randn(4 if reduction == 0 else (), dtype=torch.float64)
        got = torch.ops.aten.nll_loss_backward(g, x, target, None, reduction, 1, torch.tensor(3.0))
        loss = torch.nn.functional.nll_loss
        torch.testing.assert_close(got, _gradient(lambda x: loss(x, target, ignore_index=1, reduction=how), x, g))  # noqa: B023
    g = torch.randn(2, 3, 6, 12)
    got = torch.ops.aten.upsample_nearest2d_backward(g, [6, 12], [2, 3, 3, 6])
    torch.testing.assert_close(got, g.reshape(2, 3, 3, 2, 6, 2).sum((3, 5)))
    up = torch.ops.aten.upsample_nearest2d(
        torch.arange(4.0).view(1, 1, 2, 2), output_size=[4, 4], scales_h=2.0, scales_w=2.0
    )
    assert up[0, 0, 0].tolist() == [0, 0, 1, 1]


def test_uniform_numbers_in_the_place_of_others():
    x = torch.zeros(100)
    got = torch.ops.aten.uniform(x, 2.0, 3.0, generator=torch.Generator().manual_seed(1))
    assert bool((got >= 2).all()) and bool((got < 3).all()) and not x.any()
    assert torch.equal(
        got, torch.ops.aten.uniform(x, to=3.0, generator=torch.Generator().manual_seed(1), **{"from": 2.0})
    )
