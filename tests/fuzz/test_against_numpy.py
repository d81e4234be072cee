"""Random shapes, strides, indices, promotions and views, held against NumPy."""

import mica
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

settings.register_profile("mica", max_examples=150, deadline=None, derandomize=True)
settings.load_profile("mica")

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
shapes = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)


def filled(shape, dtype="int64"):
    count = int(np.prod(shape, dtype=np.int64))
    return np.arange(count).reshape(shape).astype(dtype)


@st.composite
def slices(draw, n):
    bound = st.one_of(st.none(), st.integers(-n - 2, n + 2))
    return slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2])))


@st.composite
def array_and_index(draw):
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    index = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(["int", "slice", "list", "full"]))
        if kind == "int":
            index.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            index.append(draw(slices(n)))
        elif kind == "list":
            index.append(draw(st.lists(st.integers(-n, n - 1), min_size=2, max_size=2)))
        else:
            index.append(slice(None))
    if draw(st.booleans()):
        index.insert(draw(st.integers(0, len(index))), None)
    if draw(st.booleans()):
        index.append(Ellipsis)
    return filled(shape), tuple(index)


@given(array_and_index())
def test_indexing_reads_what_numpy_reads(case):
    array, index = case
    ours, theirs = mica.from_numpy(array)[index], array[index]
    assert tuple(ours.shape) == np.shape(theirs) and ours.tolist() == np.asarray(theirs).tolist()


@given(array_and_index(), st.integers(-5, 5))
def test_indexing_writes_what_numpy_writes(case, value):
    array, index = case
    tensor = mica.tensor(array)
    array = array.copy()
    array[index] = value
    tensor[index] = value
    assert tensor.tolist() == array.tolist()


@given(shapes, shapes)
def test_broadcasting(a, b):
    x, y = filled(a), filled(b)
    try:
        expected = x + y
    except ValueError:
        try:
            mica.from_numpy(x) + mica.from_numpy(y)
        except RuntimeError as e:
            assert "must match" in str(e)
            return
        raise AssertionError("NumPy refuses, Mica does not") from None
    result = mica.from_numpy(x) + mica.from_numpy(y)
    assert tuple(result.shape) == expected.shape and result.tolist() == expected.tolist()


@st.composite
def walks(draw):
    """A shape and a chain of views, as functions that work on both libraries' arrays."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        steps.append(
            (draw(st.sampled_from(["swap", "slice", "index", "new", "expand", "reverse"])), draw(st.randoms()))
        )
    return tuple(shape), steps


def apply_step(tensor, array, kind, random):
    n = array.ndim
    if kind == "swap" and n >= 2:
        a, b = random.sample(range(n), 2)
        return tensor.transpose(a, b), array.swapaxes(a, b)
    if kind == "slice" and n:
        d = random.randrange(n)
        s = slice(random.randrange(0, 3), None, random.choice([1, 2]))
        key = (slice(None),) * d + (s,)
        return tensor[key], array[key]
    if kind == "reverse" and n:
        key = (slice(None),) * random.randrange(n) + (slice(None, None, -1),)
        return tensor[key], array[key]
    if kind == "index" and n and array.shape[0]:
        i = random.randrange(array.shape[0])
        return tensor[i], array[i]
    if kind == "new":
        return tensor.unsqueeze(0), array[None]
    if kind == "expand":
        return tensor.expand(2, *array.shape), np.broadcast_to(array, (2, *array.shape))
    return tensor, array


@given(walks())
def test_chains_of_views_stay_views_of_the_right_elements(case):
    shape, steps = case
    array = filled(shape, "float64")
    base = mica.from_numpy(array)
    tensor, view = base, array
    for kind, random in steps:
        tensor, view = apply_step(tensor, view, kind, random)
    assert tuple(tensor.shape) == view.shape and tensor.tolist() == view.tolist()
    assert tensor.contiguous().tolist() == view.tolist()
    assert np.isclose((tensor * 2 + 1).sum().item(), (view * 2 + 1).sum())
    if view.size and all(s >= 0 for s in view.strides):
        assert tensor.reshape(-1).tolist() == view.reshape(-1).tolist()


@given(st.sampled_from(DTYPES), st.sampled_from(DTYPES), st.booleans(), st.booleans())
def test_promotion_is_symmetric_and_holds_both(a, b, zero_dim_a, zero_dim_b):
    x = mica.ones(() if zero_dim_a else (2,), dtype=getattr(mica, a))
    y = mica.ones(() if zero_dim_b else (2,), dtype=getattr(mica, b))
    assert (x + y).dtype == (y + x).dtype == mica.result_type(x, y)
    if zero_dim_a == zero_dim_b:
        assert (x + y).dtype == mica.promote_types(x.dtype, y.dtype)


@given(
    st.lists(st.integers(-3, 5), max_size=3),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    st.integers(-(2**63), 2**63 - 1),
)
def test_as_strided_never_reaches_outside(size, stride, offset):
    x = mica.arange(10.0)
    try:
        y = x.as_strided(size, stride, offset)
    except (RuntimeError, ValueError, OverflowError):
        return
    assert all(0 <= v < 10 for v in y.reshape(-1).tolist())


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=4))
def test_hostile_sizes_are_refused(size):
    count = 1
    for s in size:
        count *= s
    if 0 <= count <= 10**6 and all(s >= 0 for s in size):
        assert mica.empty(size).numel() == count
        return
    try:
        t = mica.empty(size)
    except RuntimeError:
        return
    assert t.numel() == count
