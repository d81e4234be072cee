"""x[...] and x[...] = value. NumPy is the reference; torch's words are checked."""

import warnings

import mica
import numpy as np
import pytest

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
    (lambda x: x.__setitem__(x > 5, mica.tensor([1, 2])), RuntimeError, "shape mismatch"),
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


def test_leading_ones_of_a_value_do_not_count():
    x = mica.zeros(3, 3)
    x[range(3), range(3)] = mica.tensor([[[1.0, 2, 3]]])
    assert x.tolist() == [[1, 0, 0], [0, 2, 0], [0, 0, 3]]
    x[mica.tensor([0, 2])] = mica.tensor([[4.0, 5, 6]])
    assert x.tolist() == [[4, 5, 6], [0, 2, 0], [4, 5, 6]]
    x[mica.tensor([1, 1])] = mica.tensor([[7.0]])
    assert x[1].tolist() == [7, 7, 7]


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


def test_overlapping_reads_and_writes():
    x = mica.arange(6)
    y = mica.arange(6.0)
    for call in (lambda: x.__setitem__(x, x.flip(0)), lambda: y.__setitem__(mica.arange(5) + 1, y[:5])):
        with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor refer to"):
            call()
    assert x.tolist() == [0, 1, 2, 3, 4, 5] == y.tolist()
    columns = mica.arange(6.0).view(3, 2)
    columns[:, 0][mica.tensor([1, 2])] = columns[:2, 0]  # with gaps, as if what is read were copied first
    assert columns.tolist() == [[0, 1], [0, 3], [2, 5]]
    with pytest.raises(
        RuntimeError, match="more than one element of the written-to tensor refers to a single memory location"
    ):
        mica.zeros(1, 3).expand(4, 3).index_add_(0, mica.tensor([0]), mica.ones(1, 3))


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


def test_an_empty_index_may_have_any_dtype():
    nothing = mica.empty(0)
    assert mica.gather(mica.zeros(3), 0, nothing).shape == (0,)
    assert mica.zeros(3).scatter(0, nothing, mica.zeros(0)).tolist() == [0.0, 0.0, 0.0]
    assert mica.zeros(3).scatter_add(0, nothing.bool(), mica.zeros(0)).tolist() == [0.0, 0.0, 0.0]


def test_places_are_int64():
    rows, columns = mica.unravel_index(mica.tensor([3, 8], dtype=mica.int16), (4, 1 << 30))
    assert rows.dtype == mica.int64 and (rows.tolist(), columns.tolist()) == ([0, 0], [3, 8])


def test_a_place_that_is_filled_twice_counts_once():
    value = mica.tensor(1.0, requires_grad=True)
    mica.zeros(3).index_fill(0, mica.tensor([1, 1, 2]), value).sum().backward()
    assert value.grad.item() == 2.0


def test_a_mask_takes_a_single_element_of_any_dtype():
    x = mica.tensor([-1.0, 2.0, -3.0])
    x[x < 0] = mica.tensor([7])
    assert x.tolist() == [7, 2, 7]
    x[x > 5] = mica.tensor([[0.5]], dtype=mica.float64)
    assert x.tolist() == [0.5, 2, 0.5] and x.dtype == mica.float32
    with pytest.raises(RuntimeError, match="Index put requires the source and destination dtypes match"):
        x[x < 1] = mica.tensor([1, 2])


def test_the_element_under_a_mask_has_its_gradient():
    value = mica.tensor([3.0], requires_grad=True)
    x = mica.zeros(4)
    x[mica.tensor([True, False, True, True])] = value
    x.sum().backward()
    assert value.grad.tolist() == [3]
