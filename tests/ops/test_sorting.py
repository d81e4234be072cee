"""Sorting, selecting, searching and counting, at the level of operations."""

import mica
import numpy as np
import pytest

rng = np.random.default_rng(1)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable_along_any_dimension(dim, descending):
    a = rng.integers(0, 5, (6, 7))
    values, indices = mica.from_numpy(a).sort(dim, descending)
    keys = -a if descending else a
    expected = np.argsort(keys, dim, kind="stable")
    assert indices.tolist() == expected.tolist()
    assert values.tolist() == np.take_along_axis(a, expected, dim).tolist()
    assert mica.argsort(mica.from_numpy(a), dim, descending).tolist() == expected.tolist()


def test_nan_is_greatest_and_zero_dim_works():
    values, indices = mica.tensor([1.0, float("nan"), -1.0, float("inf")]).sort()
    assert values[:3].tolist() == [-1.0, 1.0, float("inf")] and indices.tolist() == [2, 0, 3, 1]
    values, index = mica.tensor(3.0).sort()
    assert values.item() == 3.0 and index.item() == 0 and values.dim() == 0


def test_topk_kthvalue_median_mode():
    a = rng.standard_normal((5, 9))
    x = mica.from_numpy(a)
    assert np.array_equal(x.topk(3).values.numpy(), -np.sort(-a, 1)[:, :3])
    assert np.array_equal(x.topk(3, 0, False).values.numpy(), np.sort(a, 0)[:3])
    assert np.array_equal(x.kthvalue(4).values.numpy(), np.sort(a, 1)[:, 3])
    assert np.array_equal(x.median(1).values.numpy(), np.sort(a, 1)[:, 4])
    assert x.median().item() == np.sort(a.ravel())[22]
    assert mica.tensor([3, 1, 3, 2, 1]).mode().values.item() == 1
    with pytest.raises(RuntimeError, match="k out of range"):
        x.topk(10)


def test_unique():
    a = rng.integers(-3, 4, 50)
    values, inverse, counts = mica.unique(mica.from_numpy(a), return_inverse=True, return_counts=True)
    v, i, c = np.unique(a, return_inverse=True, return_counts=True)
    assert values.tolist() == v.tolist() and inverse.tolist() == i.tolist() and counts.tolist() == c.tolist()
    rows = mica.tensor([[1, 2], [0, 1], [1, 2]])
    values, inverse = mica.unique(rows, dim=0, return_inverse=True)
    assert values.tolist() == [[0, 1], [1, 2]] and inverse.tolist() == [1, 0, 1]
    assert mica.unique_consecutive(mica.tensor([1, 1, 2, 1])).tolist() == [1, 2, 1]


@pytest.mark.parametrize("right", [False, True])
def test_searchsorted_and_bucketize(right):
    edges, values = np.sort(rng.integers(0, 20, 10)), rng.integers(-2, 22, (3, 4))
    expected = np.searchsorted(edges, values, "right" if right else "left")
    assert mica.searchsorted(mica.from_numpy(edges), mica.from_numpy(values), right=right).tolist() == expected.tolist()
    assert mica.bucketize(mica.from_numpy(values), mica.from_numpy(edges), right=right).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [mica.uint8, mica.int8, mica.int16, mica.int32, mica.int64], ids=str)
def test_bincount_counts_every_integer(dtype):
    top = 100
    mica.manual_seed(0)
    values = mica.randint(0, top, (2, 1003)).to(dtype)[:, ::2].reshape(-1)
    wanted = [values.tolist().count(v) for v in range(top)]
    assert mica.bincount(values).tolist() == wanted[: int(values.max()) + 1]
    assert mica.bincount(values, minlength=300).tolist() == wanted + [0] * (300 - top)
    assert mica.bincount(values[:0], minlength=2).tolist() == [0, 0] and mica.bincount(values[:0]).numel() == 0


def test_bincount_of_many_bins_and_of_bad_values():
    values = mica.tensor([5000, 7, 5000, 0])
    counts = mica.bincount(values)
    assert counts.numel() == 5001 and counts[5000] == 2 and counts.sum() == 4
    with pytest.raises(RuntimeError, match="non-negative"):
        mica.bincount(mica.tensor([1, -1], dtype=mica.int8))


def test_histograms_and_quantiles():
    a = rng.standard_normal(200)
    x = mica.from_numpy(a)
    hist, edges = mica.histogram(x, 8)
    h, e = np.histogram(a, 8)
    assert hist.tolist() == h.tolist() and np.allclose(edges.numpy(), e)
    assert mica.bincount(mica.tensor([1, 3, 1]), minlength=5).tolist() == [0, 2, 0, 1, 0]
    q = np.array([0.1, 0.5, 0.93])
    assert np.allclose(mica.quantile(x, mica.from_numpy(q)).numpy(), np.quantile(a, q))
    for how in ("lower", "higher", "nearest", "midpoint"):
        assert np.isclose(mica.quantile(x, 0.37, interpolation=how).item(), np.quantile(a, 0.37, method=how))
    assert mica.histc(mica.tensor([1.0, 2, 1]), bins=4, min=0, max=3).tolist() == [0, 2, 1, 0]
    assert mica.isin(mica.tensor([1, 2, 3]), mica.tensor([3, 1])).tolist() == [True, False, True]


def test_results_go_to_out():
    x = mica.tensor([3, 1, 2])
    out = mica.empty(0, dtype=mica.int64)
    assert mica.argsort(x, stable=True, out=out) is out and out.tolist() == [1, 2, 0]
    counts, edges = mica.histogram(mica.tensor([1.0, 2.0, 2.0]), 3, out=(mica.empty(0), mica.empty(0)))
    assert counts.tolist() == [1.0, 0.0, 2.0] and edges.shape == (4,)
    member = mica.empty(0, dtype=mica.bool)
    assert mica.isin(x, 2, out=member).tolist() == [False, False, True]
    assert mica.isin(2, x, out=mica.empty(0, dtype=mica.bool)).item() is True


def test_distinct_slices_stand_as_they_were_gathered():
    distinct = mica.unique(mica.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), dim=1)
    assert distinct.tolist() == [[0.0, 1.0], [1.0, 0.0]] and distinct.stride() == (1, 2)


def test_what_orders_nothing_is_refused_in_kind():
    with pytest.raises(IndexError, match="Expected reduction dim 0 to have non-zero size"):
        mica.empty(0).kthvalue(1)
    for name in ("median", "mode"):
        with pytest.raises(NotImplementedError, match=f"{name}_cpu.* not implemented for 'ComplexFloat'"):
            getattr(mica.tensor([1j, 2]), name)(0)
    with pytest.raises(NotImplementedError, match="bincount_cpu"):
        mica.bincount(mica.tensor([1.0]))


@pytest.mark.parametrize("values", [[True, False, True], [True, True], [False], [[False, True], [True, True]], []])
def test_unique_of_bools_is_that_of_bytes(values):
    bools = mica.tensor(values, dtype=mica.bool)
    found = mica.unique(bools, return_inverse=True, return_counts=True)
    expected = mica.unique(bools.to(mica.uint8), return_inverse=True, return_counts=True)
    assert found[0].dtype == mica.bool and [t.tolist() for t in found] == [t.tolist() for t in expected]
    assert mica.unique(bools).tolist() == expected[0].tolist()


def test_old_names_of_unique():
    """Values are torch's."""
    x = mica.tensor([[2.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    assert [t.tolist() for t in mica._unique(x, return_inverse=True)] == [[0, 1, 2], [[2, 1], [2, 1], [0, 1]]]
    assert [t.tolist() for t in mica._unique(x)] == [[0, 1, 2], []]
    found = mica._VF.unique_dim(x, dim=0, return_inverse=True, return_counts=True)
    assert [t.tolist() for t in found] == [[[0, 1], [2, 1]], [1, 1, 0], [1, 2]]
    found = mica.ops.aten.unique_dim_consecutive(x, 0)
    assert [t.tolist() for t in found] == [[[2, 1], [0, 1]], [0, 0, 1], [2, 1]]


@pytest.mark.parametrize("count", [0, 1, 2, 8, 9, 40])
@pytest.mark.parametrize("shape", [(), (4,), (3, 5), (0,)])
def test_isin_of_few_and_many(shape, count):
    mica.manual_seed(count)
    for dtype in (mica.int64, mica.float32, mica.float16, mica.uint8):
        x, tests = mica.randint(0, 6, shape).to(dtype), mica.randint(0, 6, (count,))
        wanted = [v in tests.tolist() for v in x.reshape(-1).tolist()]
        assert mica.isin(x, tests).reshape(-1).tolist() == wanted
        assert mica.isin(x, tests, invert=True).reshape(-1).tolist() == [not w for w in wanted]
        assert mica.isin(x, tests).shape == x.shape
    nan = mica.full((count,), float("nan"))
    assert not mica.isin(mica.tensor([float("nan"), 1.0]), nan).any()
