"""The operations of the index family: what the samples cannot show. NumPy is the reference."""

import itertools

import mica
import numpy as np
import pytest
from mica.nn import functional as F


def arange(*shape, dtype=mica.float32):
    return mica.arange(int(np.prod(shape))).reshape(shape).to(dtype)


def both(*shape):
    return arange(*shape), np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def assert_equal(t, a):
    assert tuple(t.shape) == a.shape, (t.shape, a.shape)
    assert t.tolist() == a.tolist()


# ------------------------------------------------------------------------------------------- the index family
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [mica.int64, mica.int32])
def test_index_select_copy_fill_add(dim, dtype):
    x, a = both(4, 5, 3)
    n = a.shape[dim]
    index = np.array([n - 1, 0, 1, 0])
    i = mica.tensor(index).to(dtype)
    assert_equal(x.index_select(dim, i), a.take(index, dim))
    assert_equal(x.transpose(0, 1).index_select(dim, mica.tensor([1, 0])), a.transpose(1, 0, 2).take([1, 0], dim))
    source = np.arange(4 * a.size // n, dtype=np.float32).reshape(
        [4 if d == dim % 3 else s for d, s in enumerate(a.shape)]
    )
    expected = a.copy()
    place = [slice(None)] * 3
    place[dim % 3] = index
    np.add.at(expected, tuple(place), 2 * source)
    assert_equal(x.index_add(dim, i, mica.tensor(source), alpha=2), expected)
    j = i.long()
    expected = a.copy()
    for k, at in enumerate(index):
        np.moveaxis(expected, dim, 0)[at] = np.moveaxis(source, dim, 0)[k]
    assert_equal(x.index_copy(dim, j, mica.tensor(source)), expected)
    expected = a.copy()
    np.moveaxis(expected, dim, 0)[index] = -2
    assert_equal(x.index_fill(dim, j, -2), expected)


@pytest.mark.parametrize("dim", [0, 1])
def test_gather_and_scatter_match_numpy(dim):
    rng = np.random.default_rng(0)
    for shape, index_shape in (((50, 70), (40, 60)), ((300, 400), (300, 400)), ((3, 5000), (3, 5000))):
        a = rng.integers(-50, 50, shape)
        index = rng.integers(0, shape[dim], index_shape)
        x, i = mica.tensor(a), mica.tensor(index)
        for dtype in (mica.int8, mica.int16, mica.int32, mica.int64, mica.float64, mica.complex128):
            expected = np.take_along_axis(
                a[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index_shape))], index, dim
            )
            assert_equal(x.to(dtype).gather(dim, i).to(mica.int64), expected)
        assert_equal(x.t().contiguous().t().gather(dim, i.int()), expected)
        source = rng.integers(-50, 50, index_shape)
        grid = list(np.indices(index_shape))
        grid[dim] = index
        added = a.copy()
        np.add.at(added, tuple(grid), source)
        assert_equal(x.scatter_add(dim, i, mica.tensor(source)), added)
        for reduce, ufunc in (("amax", np.maximum), ("amin", np.minimum)):
            combined = a.copy()
            ufunc.at(combined, tuple(grid), source)
            assert_equal(x.scatter_reduce(dim, i, mica.tensor(source), reduce), combined)
        last = a.copy()
        for flat in range(source.size):
            at = np.unravel_index(flat, index_shape)
            last[tuple(g[at] for g in grid)] = source[at]
        assert_equal(x.scatter(dim, i, mica.tensor(source)), last)


def test_the_last_of_repeated_places_stays():
    x = mica.zeros(4, 600)
    index = mica.tensor([1, 3] * 100)
    x[index] = mica.arange(200.0).unsqueeze(1)
    assert x[:, 0].tolist() == [0.0, 198.0, 0.0, 199.0]
    y = mica.zeros(4)
    y[index.repeat(1000)] = mica.arange(200_000.0)
    assert y.tolist() == [0.0, 199998.0, 0.0, 199999.0]


def test_reductions_without_the_old_values():
    x = mica.tensor([5, 6, 7])
    i, s = mica.tensor([0, 0]), mica.tensor([2, -9])
    expected = {"sum": -7, "prod": -18, "mean": -4, "amax": 2, "amin": -9}
    for reduce, value in expected.items():
        assert x.scatter_reduce(0, i, s, reduce, include_self=False).tolist() == [value, 6, 7]
    assert x.scatter_reduce(0, i, s, "mean").tolist() == [-1, 6, 7]
    assert x.index_reduce(0, i, s, "mean").tolist() == [-1, 6, 7]
    nan = float("nan")
    y = mica.tensor([1.0, nan]).scatter_reduce(0, mica.tensor([0, 1]), mica.tensor([nan, 3.0]), "amax")
    assert all(v != v for v in y.tolist())
    b = mica.tensor([True, False])
    assert b.scatter_reduce(0, mica.tensor([0, 0]), mica.tensor([True, False]), "amin").tolist() == [False, False]


@pytest.mark.parametrize("dtype", [mica.float16, mica.bfloat16])
def test_sums_of_16_bit_floats_are_carried_in_float(dtype):
    index = mica.zeros(1000, dtype=mica.int64)
    ones = mica.ones(1000, dtype=dtype)
    zero = mica.zeros(2, dtype=dtype)
    assert zero.scatter_add(0, index, ones).tolist() == [1000.0, 0.0]
    assert zero.index_add(0, index, ones).tolist() == [1000.0, 0.0]
    assert zero.index_put((index,), ones, True).tolist() == [1000.0, 0.0]
    weight = mica.zeros(2, 1, dtype=dtype, requires_grad=True)
    F.embedding(index, weight).sum().backward()
    assert weight.grad.tolist() == [[1000.0], [0.0]]


def test_take_and_put():
    x, a = both(3, 4)
    assert_equal(x.take(mica.tensor([[0, -1], [5, -12]])), a.take([[0, -1], [5, -12]]))
    assert_equal(x.t().take(mica.tensor([1, 2])), a.T.take([1, 2]))
    y = x.t().clone().t()
    y.put_(mica.tensor([0, -1, 0]), mica.tensor([1.0, 2.0, 5.0]), accumulate=True)
    assert y.flatten().tolist() == [6.0] + a.flatten().tolist()[1:-1] + [13.0]
    with pytest.raises(IndexError, match="out of range: tried to access index 12 on a tensor of 12 elements."):
        x.take(mica.tensor([12]))
    with pytest.raises(IndexError, match="tried to take from an empty tensor"):
        mica.zeros(0).take(mica.tensor([0]))
    assert_equal(
        mica.take_along_dim(x, mica.tensor([[-1], [0], [1]]), 1), np.take_along_axis(a, np.array([[-1], [0], [1]]), 1)
    )


def test_where():
    x, a = both(3, 4)
    mask = a % 2 == 0
    t = mica.tensor(mask)
    assert_equal(mica.where(t, x, -x), np.where(mask, a, -a))
    assert_equal(x.where(t, 0), np.where(mask, a, 0))
    assert_equal(mica.where(t.t(), x.t(), mica.tensor(1.0)), np.where(mask.T, a.T, np.float32(1)))
    assert mica.where(t, 1, 2).dtype == mica.int64
    assert mica.where(t, 1.0, 2).dtype == mica.float32
    assert mica.where(t, x, 1j).dtype == mica.complex64
    assert mica.where(t, mica.ones(1, dtype=mica.int8), mica.ones(1, dtype=mica.float16)).dtype == mica.float16
    assert mica.where(t, x, mica.tensor(1.0, dtype=mica.float64)).dtype == mica.float32
    assert [v.tolist() for v in mica.where(t)] == [v.tolist() for v in np.nonzero(mask)]
    with pytest.raises(
        RuntimeError, match="where expected condition to be a boolean tensor, but got a tensor with dtype Long"
    ):
        mica.where(mica.tensor([1, 0]), 1.0, 2.0)
    assert mica.where(mica.tensor([1, 0], dtype=mica.uint8), 1, 2).tolist() == [1, 2]


@pytest.mark.parametrize(
    "dtype", [mica.bool, mica.uint8, mica.int16, mica.float32, mica.float64, mica.complex128, mica.bfloat16]
)
def test_where_and_masked_fill_for_every_width(dtype):
    n = 1037
    mask = np.random.default_rng(0).random(n) < 0.5
    x, y, t = mica.arange(n).to(dtype), mica.zeros(n, dtype=dtype), mica.tensor(mask)
    expected = [v if m else z for v, z, m in zip(x.tolist(), y.tolist(), mask.tolist(), strict=True)]
    assert mica.where(t, x, y).tolist() == expected
    assert x.masked_fill(~t, 0).tolist() == expected
    assert mica.where(t[::-1], x[::-1], y[::-1])[::-1].tolist() == expected
    z = x.clone()
    assert z.masked_fill_(~t, mica.tensor(0)) is z and z.tolist() == expected


def test_masked_fill_checks_its_arguments():
    x = mica.zeros(3, 4)
    with pytest.raises(RuntimeError, match="masked_fill_ only supports boolean masks"):
        x.masked_fill(mica.zeros(4, dtype=mica.uint8), 1)
    with pytest.raises(
        RuntimeError, match="masked_fill_ only supports a 0-dimensional value tensor, but got tensor with 1 dimension"
    ):
        x.masked_fill(x > 0, mica.zeros(1))
    with pytest.raises(RuntimeError, match="value cannot be converted to type int8_t without overflow"):
        x.to(mica.int8).masked_fill(x > 0, 300)
    assert mica.tensor(1.0).masked_fill(mica.tensor([True, False]), 3).tolist() == [3.0, 1.0]


def test_nonzero():
    a = np.array([[0, 3, 0], [1, 0, 2]])
    x = mica.tensor(a)
    found = mica.nonzero(x)
    assert found.tolist() == np.argwhere(a).tolist() and found.stride() == (1, 3)
    assert x.t().nonzero().tolist() == np.argwhere(a.T).tolist()
    assert mica.nonzero(mica.tensor(2.0)).shape == (1, 0)
    assert mica.nonzero(mica.zeros(2, 0)).shape == (0, 2)
    assert mica.nonzero(mica.tensor([0j, 1j, float("nan")])).tolist() == [[1], [2]]
    assert mica.nonzero_static(x, size=5, fill_value=7).tolist() == np.argwhere(a).tolist() + [[7, 7]] * 2
    big = np.random.default_rng(0).random((300, 5, 130)) < 0.3
    assert mica.nonzero(mica.tensor(big)).tolist() == np.argwhere(big).tolist()


def test_masked_scatter():
    x, a = both(3, 4)
    mask = a % 3 == 1
    got = x.masked_scatter(mica.tensor(mask), mica.arange(20.0) + 100)
    a[mask] = np.arange(mask.sum()) + 100
    assert_equal(got, a)
    with pytest.raises(RuntimeError, match="Number of elements of source < number of ones in mask"):
        x.masked_scatter(x > 0, mica.ones(1))
    y = x.t().clone().t().masked_scatter_(x >= 0, mica.arange(12.0))
    assert_equal(y, np.arange(12, dtype=np.float32).reshape(3, 4))


def test_copies_with_a_view_overwritten():
    x = arange(3, 4)
    assert mica.select_scatter(x, mica.ones(4), 0, -1)[2].tolist() == [1.0] * 4
    assert mica.slice_scatter(x, mica.ones(3, 2), 1, 0, None, 2)[:, 0].tolist() == [1.0] * 3
    assert mica.diagonal_scatter(x, mica.zeros(3), 1).diagonal(1).tolist() == [0.0] * 3
    assert mica.as_strided_scatter(x.t(), mica.zeros(2), (2,), (5,))[0].tolist() == [0.0, 4.0, 8.0]
    with pytest.raises(
        RuntimeError,
        match=r"expected src to have a size equal to the slice of self. src size = \[3\], slice size = \[4\]",
    ):
        mica.select_scatter(x, mica.ones(3), 0, 0)
    assert x.tolist() == arange(3, 4).tolist()


def test_gradients_that_samples_do_not_reach():
    index = mica.tensor([[1, 0], [0, 2]])

    def check(function, *inputs):
        assert mica.autograd.gradcheck(function, [t.to(mica.float64).requires_grad_() for t in inputs])

    # A source larger than the index: what is not used has gradient zero.
    check(lambda x, s: x.scatter(0, index, s), arange(3, 4), arange(4, 5) + 20)
    check(lambda x, s: x.scatter_add(0, index, s), arange(3, 4), arange(4, 5))
    for reduce in ("sum", "mean", "prod", "amax"):
        check(
            lambda x, s, r=reduce: x.scatter_reduce(0, index, s, r, include_self=False),
            arange(3, 4) + 0.5,
            arange(4, 5) * 1.5 - 3,
        )
    # Products with no, one and two zeros.
    for values in ([1.0, 2.0, 3.0], [0.0, 2.0, 3.0], [0.0, 0.0, 3.0]):
        check(
            lambda x, s: x.scatter_reduce(0, mica.tensor([0, 0, 0]), s, "prod"), mica.tensor([2.0]), mica.tensor(values)
        )
    # Storage-wide views, of a contiguous and of a transposed tensor.
    check(lambda x, s: mica.as_strided_scatter(x, s, (2, 2), (4, 1)), arange(3, 4), arange(2, 2))
    check(lambda x, s: mica.as_strided_scatter(x.t(), s, (2,), (3,), 1), arange(3, 4), arange(2))
    check(lambda x: x.clone().fill_diagonal_(0), arange(3, 3))


def test_second_derivatives():
    index = mica.tensor([0, 2, 0])
    for function in (
        lambda x: x[:, index],
        lambda x: x[x > 3.5],
        lambda x: x.index_select(1, index),
        lambda x: x.gather(1, mica.tensor([[0, 0], [1, 2]])),
        lambda x: x.take(index),
        lambda x: F.embedding(mica.tensor([1, 1]), x),
        lambda x: x.masked_fill(x > 3.5, 0.0),
        lambda x: x.index_add(1, index, x),
        lambda x: x.scatter_reduce(1, mica.tensor([[0, 0], [1, 2]]), x, "prod"),
    ):
        x = (arange(2, 3) + 1).to(mica.float64).requires_grad_()
        assert mica.autograd.gradgradcheck(lambda x, f=function: f(x) ** 2, [x])


def test_fill_diagonal():
    x = mica.zeros(7, 3).fill_diagonal_(1, wrap=True)
    expected = np.zeros((7, 3))
    np.fill_diagonal(expected, 1, wrap=True)
    assert x.tolist() == expected.tolist()
    assert mica.zeros(3, 3, 3).fill_diagonal_(2).sum().item() == 6.0
    with pytest.raises(RuntimeError, match="dimensions must larger than 1"):
        mica.zeros(3).fill_diagonal_(1)
    with pytest.raises(RuntimeError, match="all dimensions of input must be of equal length"):
        mica.zeros(2, 3, 4).fill_diagonal_(1)


def test_unravel_index():
    got = mica.unravel_index(mica.tensor([[7, 4], [0, 11]]), (3, 4))
    assert [g.tolist() for g in got] == [g.tolist() for g in np.unravel_index(np.array([[7, 4], [0, 11]]), (3, 4))]
    assert mica.unravel_index(mica.tensor(7), 12)[0].item() == 7
    with pytest.raises(TypeError, match="expected 'indices' to be integer dtype"):
        mica.unravel_index(mica.tensor(1.0), 12)


# ------------------------------------------------------------------------------------------- tables of rows
def test_embedding():
    weight, w = both(5, 3)
    index = np.array([[4, 0], [2, 2]])
    for dtype in (mica.int64, mica.int32):
        assert_equal(F.embedding(mica.tensor(index).to(dtype), weight), w[index])
    assert F.embedding(mica.tensor(1), weight).tolist() == w[1].tolist()
    assert F.embedding(mica.zeros(2, 0, dtype=mica.int64), weight).shape == (2, 0, 3)
    for wrong in (5, -1):
        with pytest.raises(IndexError, match="index out of range in self"):
            F.embedding(mica.tensor([wrong]), weight)
    with pytest.raises(RuntimeError, match="scalar types: Long, Int; but got torch.FloatTensor instead"):
        F.embedding(mica.tensor([1.0]), weight)
    with pytest.raises(RuntimeError, match="'weight' must be 2-D"):
        F.embedding(mica.tensor([1]), weight[0])


def test_embedding_gradients():
    index = mica.tensor([[4, 0], [2, 4]])
    for options, rows in (
        ({}, [1, 0, 1, 0, 2]),
        ({"padding_idx": -1}, [1, 0, 1, 0, 0]),
        ({"scale_grad_by_freq": True}, [1, 0, 1, 0, 1]),
    ):
        weight = mica.zeros(5, 3, requires_grad=True)
        F.embedding(index, weight, **options).sum().backward()
        assert weight.grad[:, 0].tolist() == rows


def test_embedding_max_norm_scales_rows_in_place():
    weight = arange(3, 4).requires_grad_()
    out = F.embedding(mica.tensor([1, 1]), weight, max_norm=1.0)
    assert abs(out[0].norm().item() - 1.0) < 1e-5
    assert weight[2].tolist() == [8.0, 9.0, 10.0, 11.0] and weight[1].tolist() == out[0].tolist()
    assert F.embedding(mica.tensor([1]), arange(2, 4), max_norm=4.0, norm_type=1.0).sum().item() == pytest.approx(
        4.0, rel=1e-6
    )


def test_one_hot():
    assert F.one_hot(mica.tensor([[0, 2]])).tolist() == [[[1, 0, 0], [0, 0, 1]]]
    assert F.one_hot(mica.tensor([1]), 4).tolist() == [[0, 1, 0, 0]]
    assert F.one_hot(mica.zeros(0, dtype=mica.int64), 3).shape == (0, 3)
    for index, classes, words in (
        (mica.tensor([-1]), -1, "Class values must be non-negative"),
        (mica.tensor([2]), 2, "Class values must be smaller than num_classes"),
        (mica.zeros(0, dtype=mica.int64), -1, "Can not infer total number of classes from empty tensor"),
        (mica.tensor([1.0]), -1, "one_hot is only applicable to index tensor of type LongTensor"),
    ):
        with pytest.raises(RuntimeError, match=words):
            F.one_hot(index, classes)


def test_results_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    index = mica.tensor(rng.integers(0, 50, 20_000))
    source = mica.tensor(rng.standard_normal((20_000, 33)).astype(np.float32))
    before = mica.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            mica.set_num_threads(threads)
            results.append((mica.zeros(50, 33).index_add(0, index, source), mica.zeros(50).index_put((index,), source[:, 0], True),
                            mica.zeros(50).scatter_add(0, index, source[:, 0].contiguous()), source[source > 1]))  # fmt: skip
    finally:
        mica.set_num_threads(before)
    for a, b in itertools.product(results[1:], results[:1]):
        for s, t in zip(a, b, strict=True):
            assert s.tolist() == t.tolist()


def test_expanded_tensors_may_be_written_to_with_a_warning():
    for name, write in {
        "index_put_": lambda x: x.index_put_((mica.tensor([0]),), mica.tensor(1.0)),
        "index_fill_": lambda x: x.index_fill_(0, mica.tensor([0]), 1.0),
    }.items():
        with pytest.warns(UserWarning, match=f"Use of {name} on expanded tensors is deprecated"):
            assert write(mica.zeros(1).expand(3)).tolist() == [1.0, 1.0, 1.0]
    assert mica.zeros(1).expand(3).fill_(2.0).tolist() == [2.0, 2.0, 2.0]
    assert mica.ones(2, 1).expand(2, 3).zero_().tolist() == [[0.0] * 3] * 2
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        mica.zeros(1).expand(3).index_add_(0, mica.tensor([0]), mica.ones(1))
