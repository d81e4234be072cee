"""Indexing and the index family: what the samples cannot show. NumPy is the reference; torch's words are checked."""

import itertools
import warnings

import mica
import numpy as np
import pytest
from mica.nn import functional as F

SLICES = [
    slice(None),
    slice(1, None),
    slice(None, -1),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(-1, None, -2),
    slice(5, 1),
]


def arange(*shape, dtype=mica.float32):
    return mica.arange(int(np.prod(shape))).reshape(shape).to(dtype)


def both(*shape):
    return arange(*shape), np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def assert_equal(t, a):
    assert tuple(t.shape) == a.shape, (t.shape, a.shape)
    assert t.tolist() == a.tolist()


def indices_for(numpy_index):
    """The same index with tensors instead of arrays."""
    if isinstance(numpy_index, tuple):
        return tuple(mica.tensor(i) if isinstance(i, np.ndarray) else i for i in numpy_index)
    return mica.tensor(numpy_index) if isinstance(numpy_index, np.ndarray) else numpy_index


# ---------------------------------------------------------------------------------------------------- x[...]
@pytest.mark.parametrize("first", SLICES + [0, -1, None, ...])
@pytest.mark.parametrize("second", SLICES[:5] + [1, None])
def test_basic_indices_are_views(first, second):
    x, a = both(4, 5, 3)
    assert_equal(x[first, second], a[first, second])
    assert x[first, second].data_ptr() == 0 or x[first, second]._base is x
    y, b = both(4, 5, 3)
    y[first, second] = -1
    b[first, second] = -1
    assert_equal(y, b)


def test_negative_steps_share_memory():
    x = arange(6)
    back = x[::-1]
    assert back.stride() == (-1,)
    back[0] = 10
    assert x[5].item() == 10
    assert x[4:1:-2].tolist() == [4.0, 2.0]


ADVANCED = [
    (np.array([0, 2, 1]),),
    (np.array([-1, 0]), slice(None, None, -1)),
    (slice(None), np.array([0, 2])),
    (slice(1, 3), np.array([[0, 2], [1, 1]]), slice(None, None, 2)),
    (np.array([0, 1]), slice(None), np.array([1, 0])),
    (np.array([0, 1]), None, np.array([1, 0])),
    (None, np.array([0, 1])),
    (..., np.array([2, 0])),
    (np.array([[0], [1]]), np.array([[0, 2, 1]])),
    (np.array([0, 1]), ..., np.array([1, 2])),
    (np.array([], dtype=np.int64),),
    (np.array([True, False, True, False]),),
    (slice(None), np.array([True, False, True, False, True])),
    (np.array([True, False, True, False]), np.array([1, 2])),
    (np.array([True, False, True, False]), slice(None), np.array([0, 2])),
]


@pytest.mark.parametrize("index", ADVANCED, ids=str)
def test_advanced_indices_match_numpy(index):
    x, a = both(4, 5, 3)
    assert_equal(x[indices_for(index)], a[index])
    for view, same in ((x.transpose(0, 2), a.transpose(2, 1, 0)), (x[::-1], a[::-1])):
        try:
            expected = same[index]
        except IndexError:
            continue
        assert_equal(view[indices_for(index)], expected)


@pytest.mark.parametrize("index", ADVANCED, ids=str)
def test_assignment_through_advanced_indices_matches_numpy(index):
    x, a = both(4, 5, 3)
    chosen = a[index]
    x[indices_for(index)] = 7.5
    a[index] = 7.5
    assert_equal(x, a)
    values = -np.arange(chosen.size, dtype=np.float32).reshape(chosen.shape)
    x[indices_for(index)] = mica.tensor(values)
    a[index] = values
    assert_equal(x, a)
    if chosen.ndim:
        x[indices_for(index)] = mica.tensor(values[..., :1])
        a[index] = values[..., :1]
        assert_equal(x, a)


def test_masks():
    x, a = both(3, 4, 2)
    mask = a % 3 == 0
    t = mica.tensor(mask)
    assert_equal(x[t], a[mask])
    assert_equal(x[t[:, :, 0]], a[mask[:, :, 0]])
    x[t] = 1
    a[mask] = 1
    assert_equal(x, a)
    x[~t] = mica.arange(float((~mask).sum()))
    a[~mask] = np.arange((~mask).sum())
    assert_equal(x, a)
    x[t[:, :, 0]] = mica.tensor([5.0, 6.0])
    a[mask[:, :, 0]] = [5.0, 6.0]
    assert_equal(x, a)
    x[:, t[0, :, 0]] = 3
    a[:, mask[0, :, 0]] = 3
    assert_equal(x, a)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.4, 1.0])
def test_masked_select_of_many(dtype, share):
    rng = np.random.default_rng(0)
    mask = rng.random(100_003) < share
    a = (rng.random(mask.size) * 100).astype(dtype)
    x, t = mica.tensor(a), mica.tensor(mask)
    assert_equal(x[t], a[mask])
    y = mica.zeros_like(x)
    y[t] = x[t]
    assert_equal(y, np.where(mask, a, np.zeros_like(a)))
    assert_equal(mica.nonzero(t)[:, 0], np.nonzero(mask)[0])


def test_sequences_and_numbers_of_every_kind():
    x, a = both(4, 3)
    assert_equal(x[[2, 0]], a[[2, 0]])
    assert_equal(x[range(2)], a[:2])
    assert_equal(x[[True, False, True, False]], a[[0, 2]])
    assert_equal(x[np.array([1, 1])], a[[1, 1]])
    assert_equal(x[np.int64(2)], a[2])
    assert_equal(x[np.array(2)], a[2])
    assert_equal(x[mica.tensor(1), mica.tensor(2)], a[1, 2])
    assert_equal(x[(0, 1), (2, 0)], a[(0, 1), (2, 0)])
    assert_equal(x[[]], a[[]])
    assert_equal(x[True], a[True])
    assert_equal(x[False], a[False])
    assert_equal(x[mica.tensor(True)], a[True])
    assert_equal(x[mica.tensor([1], dtype=mica.int32)], a[[1]])
    assert_equal(x[()], a)
    assert x[...] is not x
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        assert_equal(x[[[0, 1], [2, 0]]], a[(0, 1), (2, 0)])


def test_placement_of_the_index_dimensions_with_integers():
    # torch carries out integers first, so that they do not count as indices that stand apart.
    x = arange(2, 3, 4)
    i = mica.tensor([0, 1])
    assert x[0, :, i].shape == (3, 2)
    assert x[i, :, i].shape == (2, 3)
    assert x[:, i, 0].tolist() == [[0.0, 4.0], [12.0, 16.0]]
    assert x[i, None, i].shape == (2, 1, 4)


def test_byte_masks_still_work_and_warn():
    x = arange(2, 3)
    with pytest.warns(UserWarning, match="indexing with dtype torch.uint8 is now deprecated"):
        assert x[mica.tensor([0, 1], dtype=mica.uint8)].tolist() == [[3.0, 4.0, 5.0]]
    with pytest.warns(UserWarning, match="torch.uint8"):
        x[mica.tensor([0, 1], dtype=mica.uint8)] = mica.tensor([9.0])
    assert x.tolist() == [[0.0, 1.0, 2.0], [9.0, 9.0, 9.0]]


ERRORS = [
    (lambda x: x[2], IndexError, "index 2 is out of bounds for dimension 0 with size 2"),
    (lambda x: x[:, -4], IndexError, "index -4 is out of bounds for dimension 1 with size 3"),
    (lambda x: x[mica.tensor([7])], IndexError, "index 7 is out of bounds for dimension 0 with size 2"),
    (lambda x: x[mica.tensor([-3])], IndexError, "index -3 is out of bounds for dimension 0 with size 2"),
    (lambda x: x[:, mica.tensor([2**62])], IndexError, f"index {2**62} is out of bounds for dimension 1 with size 3"),
    (lambda x: x[mica.tensor([-(2**63)])], IndexError, "out of bounds for dimension 0"),
    (lambda x: x[mica.tensor([0]), :, mica.tensor([9])], IndexError, "index 9 is out of bounds for dimension 2 with size 4"),
    (lambda x: x[0, 0, 0, 0], IndexError, "too many indices for tensor of dimension 3"),
    (lambda x: x[..., mica.zeros(2, 3, 4, 5, dtype=mica.bool)], IndexError, "too many indices for tensor of dimension 3"),
    (lambda x: x[mica.tensor([True, False, True])], IndexError,
     r"The shape of the mask \[3\] at index 0 does not match the shape of the indexed tensor \[2, 3, 4\] at index 0"),
    (lambda x: x[:, mica.tensor([True, False])], IndexError, r"\[2\] at index 0 .* \[2, 3, 4\] at index 1"),
    (lambda x: x[mica.tensor([0, 1]), mica.tensor([0, 1, 2])], IndexError,
     r"shape mismatch: indexing tensors could not be broadcast together with shapes \[2\], \[3\]"),
    (lambda x: x[1.5], IndexError, r"only integers, slices \(`:`\), ellipsis \(`...`\), None and long or byte Variables"),
    (lambda x: x[mica.tensor([1.5])], IndexError, "tensors used as indices must be long, int, byte or bool tensors"),
    (lambda x: x["a"], TypeError, "invalid data type 'str'"),
    (lambda x: x[::0], ValueError, "slice step cannot be zero"),
    (lambda x: x["a":], TypeError, "slice indices must be integers"),
    (lambda x: x[10**30], ValueError, "Overflow"),
    (lambda x: x[0, 0, 0][0], IndexError, "invalid index of a 0-dim tensor"),
    (lambda x: x[0, 0, 0][:], IndexError, r"slice\(\) cannot be applied to a 0-dim tensor"),
    (lambda x: x.index_put_((mica.tensor([0]),), mica.ones(7)), RuntimeError,
     r"shape mismatch: value tensor of shape \[7\] cannot be broadcast to indexing result of shape \[1, 3, 4\]"),
    (lambda x: x.index_put_((mica.tensor([0]),), mica.tensor([1])), RuntimeError, "source and destination dtypes match"),
    (lambda x: x.__setitem__(x > 5, mica.ones(2)), RuntimeError, r"\[2\] cannot be broadcast to indexing result of shape \[18\]"),
    (lambda x: x.__setitem__(0, "a"), TypeError, "can't assign a str to a torch.FloatTensor"),
    (lambda x: x.__setitem__(mica.tensor([0]), 1j), RuntimeError, "value cannot be converted to type float"),
]  # fmt: skip


@pytest.mark.parametrize("call, kind, words", ERRORS, ids=lambda v: getattr(v, "__name__", str(v))[:40])
def test_errors(call, kind, words):
    x = arange(2, 3, 4)
    before = x.tolist()
    with pytest.raises(kind, match=words):
        call(x)
    assert x.tolist() == before


def test_a_failing_assignment_writes_nothing():
    x = mica.zeros(1000)
    index = mica.arange(1000)
    index[999] = 1000
    for change in (
        lambda: x.__setitem__(index, 1.0),
        lambda: x.index_add_(0, index, mica.ones(1000)),
        lambda: x.scatter_(0, index, 1.0),
        lambda: x.put_(index, mica.ones(1000)),
        lambda: x.index_copy_(0, index, mica.ones(1000)),
        lambda: mica.gather(mica.ones(1000), 0, index, out=x),
        lambda: mica.index_select(mica.ones(1000), 0, index, out=x),
    ):
        with pytest.raises((IndexError, RuntimeError)):
            change()
        assert x.sum().item() == 0


def test_gradients_flow_through_every_kind_of_index():
    for index in ((0,), (slice(None, None, -1), 1), (mica.tensor([0, 0, 1]),), (slice(None), mica.tensor([1, 1])), (None, ..., 0),
                  (mica.tensor([[True, False, True], [False, True, True]]),), (mica.tensor([True, False]), mica.tensor([2]))):  # fmt: skip
        x = arange(2, 3).requires_grad_()
        y = x[index]
        w = arange(*y.shape) + 1 if y.dim() else mica.tensor(2.0)
        (y * w).sum().backward()
        expected = np.zeros((2, 3), np.float32)
        np.add.at(
            expected,
            tuple(np.array(i.tolist()) if isinstance(i, mica.Tensor) else i for i in index),
            np.array(w.tolist(), np.float32),
        )
        assert_equal(x.grad, expected)


def test_gradients_of_assignments():
    x = arange(2, 3).requires_grad_()
    v = mica.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y[mica.tensor([0, 1]), mica.tensor([2, 0])] = v
    y[:, 1] = 0
    (y * (arange(2, 3) + 1)).sum().backward()
    assert x.grad.tolist() == [[2.0, 0.0, 0.0], [0.0, 0.0, 12.0]]
    assert v.grad.tolist() == [3.0, 4.0]
    z = arange(4).requires_grad_()
    s = mica.tensor(3.0, requires_grad=True)
    w = z * 1
    w[w > 1] = s
    w.sum().backward()
    assert z.grad.tolist() == [1.0, 1.0, 0.0, 0.0] and s.grad.item() == 2.0


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
    with pytest.warns(UserWarning, match="where received a uint8 condition tensor"):
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


def test_overlapping_reads_and_writes():
    x = mica.arange(6)
    x[x] = x.flip(0)
    assert x.tolist() == [5, 4, 3, 2, 1, 0]
    y = mica.arange(6.0)
    y[mica.arange(5) + 1] = y[:5]
    assert y.tolist() == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    with pytest.raises(
        RuntimeError, match="more than one element of the written-to tensor refers to a single memory location"
    ):
        mica.zeros(1, 3).expand(4, 3).index_add_(0, mica.tensor([0]), mica.ones(1, 3))


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


def test_meta_tensors_know_their_shapes():
    x = mica.empty(3, 4, device="meta")
    i = mica.tensor([0, 2])
    assert x[i].shape == (2, 4) and x[:, i.to("meta")].shape == (3, 2)
    assert x.gather(1, mica.empty(3, 2, dtype=mica.int64, device="meta")).shape == (3, 2)
    assert mica.where(x > 0, x, 0.0).shape == (3, 4)
    with pytest.raises(NotImplementedError):
        mica.nonzero(x)


def test_nothing_warns_without_cause():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = arange(3, 4)
        x[[0, 1]] = x[mica.tensor([1, 2])]
        x[x > 2] = 0
