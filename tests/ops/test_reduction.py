"""Reductions: every dtype and layout against NumPy, torch's dtypes, edge cases and messages."""

import math

import mica
import numpy as np
import pytest

rng = np.random.default_rng(2)
INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]

# Each view takes a contiguous array to one that NumPy and Mica stride alike.
VIEWS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.T,
    "every second": lambda a: a[..., ::2],
    "backwards": lambda a: a[::-1, ..., ::-1],
    "cut out": lambda a: a[1:-1, ..., 2:],
}


def random(shape, dtype):
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in INTEGERS:
        return rng.integers(0 if dtype == "uint8" else -9, 10, shape).astype(dtype)
    if dtype.startswith("complex"):
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def as_mica(array):
    return mica.from_numpy(array)


def assert_close(result, expected, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(result.numpy(), expected, rtol=rtol, atol=atol)


DIMS = [None, 0, 1, -1, (0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dim", DIMS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
def test_sums_and_means_over_any_dimensions_and_strides(view, dim, dtype):
    a = VIEWS[view](random((7, 10, 70), dtype))
    t = as_mica(a)
    wide = {"float32": "float64", "int32": "int64", "complex64": "complex128"}.get(dtype, dtype)
    assert_close(t.sum() if dim is None else t.sum(dim), a.sum(dim, dtype=wide), atol=1e-4)
    assert_close(mica.sum(t, dim, keepdim=True), a.sum(dim, dtype=wide, keepdims=True), atol=1e-4)
    if dtype != "int32":
        assert_close(mica.mean(t, dim), a.mean(dim, dtype=wide), atol=1e-5)
        assert_close(mica.var(t, dim, correction=0), a.astype(wide).var(dim), rtol=1e-5)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint8"])
def test_extrema_and_their_places(view, dim, dtype):
    a = VIEWS[view](random((6, 9, 300), dtype))
    t = as_mica(a)
    assert np.array_equal(t.amax(dim).numpy(), a.max(dim)) and np.array_equal(t.amin(dim).numpy(), a.min(dim))
    values, indices = t.max(dim)
    assert np.array_equal(values.numpy(), a.max(dim)) and np.array_equal(indices.numpy(), a.argmax(dim))
    values, indices = t.min(dim)
    assert np.array_equal(values.numpy(), a.min(dim)) and np.array_equal(indices.numpy(), a.argmin(dim))
    assert np.array_equal(t.argmax(dim, keepdim=True).numpy(), np.expand_dims(a.argmax(dim), dim))
    assert t.argmax().item() == a.argmax() and t.argmin().item() == a.argmin()
    low, high = t.aminmax(dim=dim)
    assert np.array_equal(low.numpy(), a.min(dim)) and np.array_equal(high.numpy(), a.max(dim))
    assert t.max().item() == a.max() and t.min().item() == a.min()


@pytest.mark.parametrize(
    "shape, dim", [((3, 200000), 1), ((200000, 3), 0), ((600, 700), 0), ((600, 700), 1), ((400000,), 0)]
)
def test_long_reductions_are_cut_into_pieces_without_harm(shape, dim):
    a = random(shape, "float32")
    t = as_mica(a)
    wide = a.astype("float64")
    assert_close(t.sum(dim), wide.sum(dim), rtol=2e-6, atol=1e-3)
    assert_close(t.mean(dim), wide.mean(dim), atol=1e-6)
    assert_close(t.var(dim), wide.var(dim, ddof=1), rtol=1e-6)
    assert_close(t.norm(2, dim), np.sqrt((wide**2).sum(dim)), rtol=1e-6)
    assert_close(t.logsumexp(dim), np.log(np.exp(wide).sum(dim)), rtol=1e-6)
    assert np.array_equal(t.argmax(dim).numpy(), a.argmax(dim))
    assert np.array_equal(t.amin(dim).numpy(), a.min(dim))
    assert np.array_equal((t > 0).count_nonzero(dim).numpy(), (a > 0).sum(dim))


def test_the_number_of_threads_does_not_change_a_sum():
    t = mica.randn(300, 4000)
    before = mica.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            mica.set_num_threads(threads)
            results.append(
                (t.sum().item(), t.sum(0).tolist(), t.var().item(), t.norm().item(), t.logsumexp(0).tolist())
            )
    finally:
        mica.set_num_threads(before)
    assert results[0] == results[1] == results[2]


def test_sums_lose_little():
    a = rng.random(1 << 22).astype("float32")
    assert mica.from_numpy(a).sum().item() == pytest.approx(a.sum(dtype="float64"), rel=1e-7)
    same = np.full(1 << 22, 0.1, "float32")  # every rounding goes the same way
    assert mica.from_numpy(same).sum().item() == pytest.approx(same.sum(dtype="float64"), rel=2e-7)
    many = np.full(1 << 22, 0.1)
    assert mica.from_numpy(many).sum().item() == pytest.approx(math.fsum(many), rel=1e-15)


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12, 1e-25, 1e25, 1e-37, 1e36])
@pytest.mark.parametrize("n", [5, 511, 512, 1025, 5000])
def test_norms_of_large_and_small_numbers(n, scale):
    x = ((mica.arange(n) * 37 % 101 - 50) / 51 * scale).float()
    wide = math.sqrt(math.fsum(v * v for v in x.double().tolist()))
    assert x.norm().item() == pytest.approx(wide, rel=3e-7)
    assert x.expand(3, n).contiguous().norm(dim=1).tolist() == pytest.approx([wide] * 3, rel=3e-7)


def test_norms_of_what_no_float_holds():
    x = mica.ones(2048)
    x[700] = math.inf
    assert x.norm().item() == math.inf
    x[3] = math.nan
    assert math.isnan(x.norm().item())
    few = mica.zeros(2048)
    few[::600] = 1e-30  # squares that floats round to zero
    assert few.norm().item() == pytest.approx(2e-30, rel=1e-6) and mica.zeros(2048).norm().item() == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_floats_accumulate_in_float(dtype):
    t = mica.ones(4096, dtype=getattr(mica, dtype))
    assert t.sum().item() == 4096 and t.mean().item() == 1 and t.var().item() == 0 and t.norm().item() == 64
    assert t.sum().dtype == getattr(mica, dtype) and t.sum(dtype=mica.float32).dtype == mica.float32
    m = mica.randn(33, 65).to(getattr(mica, dtype))
    wide = m.float()
    for dim in (0, 1):
        for op in ("sum", "mean", "amax", "var", "logsumexp"):
            ours, reference = getattr(m, op)(dim), getattr(wide, op)(dim)
            assert mica.allclose(ours.float(), reference, rtol=1e-2, atol=1e-2), op


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_integers_and_bool_sum_as_int64(dtype):
    a = random((5, 7), dtype)
    t = as_mica(a)
    assert t.sum().dtype == mica.int64 and t.sum().item() == a.sum(dtype="int64")
    assert np.array_equal(t.sum(0).numpy(), a.sum(0, dtype="int64"))
    assert t.prod(1).dtype == mica.int64 and np.array_equal(t.prod(1).numpy(), a.prod(1, dtype="int64"))
    assert t.amax().dtype == t.dtype and t.max(1).values.dtype == t.dtype
    assert t.count_nonzero().item() == np.count_nonzero(a)
    with pytest.raises(RuntimeError, match="could not infer output dtype"):
        t.mean()
    assert t.mean(dtype=mica.float64).item() == pytest.approx(a.astype("float64").mean())


def test_sum_takes_the_dtype_of_out_and_the_dtype_argument():
    t = mica.tensor([[1.6, 1.6], [2.6, 2.6]])
    assert mica.sum(t, 0, dtype=mica.int64).tolist() == [3, 3]
    assert mica.sum(t, 0, out=mica.zeros(2, dtype=mica.int32)).tolist() == [3, 3]
    assert mica.ones(3, dtype=mica.uint8).sum(dtype=mica.float32).dtype == mica.float32


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_is_the_extremum_and_its_first_place_counts(dtype):
    t = mica.tensor([1.0, math.nan, 5.0, math.nan, -1.0] * 20, dtype=getattr(mica, dtype))
    for op in ("max", "min", "amax", "amin"):
        assert math.isnan(getattr(t, op)().item())
    assert t.argmax().item() == 1 and t.argmin().item() == 1
    assert t.max(0).indices.item() == 1 and math.isnan(t.max(0).values.item())
    m = t.reshape(20, 5)
    assert m.argmax(1).tolist() == [1] * 20 and m.argmax(0).tolist() == [0] * 5
    assert m.isnan().any(0).tolist() == m.amax(0).isnan().tolist() == [False, True, False, True, False]
    assert (
        m.nansum().item() == 100 and m.nansum(1).tolist() == [5.0] * 20 and m.nanmean().item() == pytest.approx(5 / 3)
    )


def test_infinities_and_ties():
    t = mica.tensor([-math.inf] * 40)
    assert t.argmax().item() == 0 and t.amax().item() == -math.inf and t.logsumexp(0).item() == -math.inf
    assert mica.tensor([math.inf, 1.0]).logsumexp(0).item() == math.inf
    assert mica.tensor([math.inf, -math.inf]).sum().isnan().item()
    assert mica.tensor([math.inf, 1.0], dtype=mica.float64).sum().item() == math.inf
    assert mica.tensor([3, 7, 7, 7, 1]).argmax().item() == 1
    assert mica.full((50, 40), -math.inf).logsumexp(0).tolist() == [-math.inf] * 40


@pytest.mark.parametrize("dtype", ["int64", "float32", "bfloat16", "uint8"])
@pytest.mark.parametrize("step", [2, 3, 5, 40])
def test_many_elements_far_apart(dtype, step):
    """Their lines are asked for ahead, part by part, which changes nothing of how they are summed up."""
    flat = mica.randint(0, 8, ((1 << 18) * step // 2 + 13,)).to(getattr(mica, dtype))
    x = flat[::step]
    dense = x.contiguous()
    for name in ("sum", "amax", "argmax"):
        assert mica.equal(getattr(x, name)(), getattr(dense, name)()), name
    assert mica.equal(mica.dot(x, x[:]), mica.dot(x, dense))
    rows = mica.arange(3 * 5 * 99991)[: 3 * 99991 * 5].view(3, 99991 * 5)[:, ::5]
    assert rows.sum(1).tolist() == rows.contiguous().sum(1).tolist()
    assert rows.argmax(1).tolist() == [99990] * 3


def test_places_among_all_elements_need_no_copy():
    whole = mica.randint(0, 1000, (30, 80))
    for x in (whole[:, ::2], whole[:, 1::2], whole[::-1, ::-1], whole[:, ::2].view(5, 6, 40)):
        expected = x.contiguous().argmax().item(), x.contiguous().argmin().item()
        with mica.inspect.copies() as log:
            assert (x.argmax().item(), x.argmin().item()) == expected
        assert not log
    assert whole.t().argmax().item() == whole.t().contiguous().argmax().item()
    assert whole[:, ::2].argmax(keepdim=True).tolist() == [[whole[:, ::2].contiguous().argmax().item()]]


def test_empty_tensors():
    e, rows = mica.zeros(0), mica.zeros(3, 0)
    assert (
        e.sum().item() == 0 and e.prod().item() == 1 and e.norm().item() == 0 and e.all().item() and not e.any().item()
    )
    assert e.mean().isnan().item()
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        assert e.var().isnan().item()
    assert rows.sum(1).tolist() == [0, 0, 0] and rows.sum(0).shape == (0,) and rows.amax(0).shape == (0,)
    assert rows.logsumexp(1).tolist() == [-math.inf] * 3
    for op in ("max", "min", "amax", "amin"):
        with pytest.raises(RuntimeError, match="Expected reduction dim to be specified"):
            getattr(e, op)()
        with pytest.raises(IndexError, match="Expected reduction dim 1 to have non-zero size"):
            getattr(rows, op)(1)
    with pytest.raises(IndexError, match="argmax"):
        e.argmax()
    with pytest.raises(RuntimeError, match="does not have an identity"):
        e.norm(math.inf)


def test_zero_dim_tensors_take_dim_0_and_minus_1():
    s = mica.tensor(3.0)
    for dim in (0, -1):
        assert s.sum(dim).item() == 3 and s.max(dim).indices.item() == 0 and s.norm(2, dim).item() == 3
        assert s.sum(dim, keepdim=True).dim() == 0
    with pytest.raises(IndexError, match=r"Dimension out of range \(expected to be in range of \[-1, 0\], but got 1\)"):
        s.sum(1)


def test_dimensions_are_checked():
    t = mica.ones(2, 3)
    with pytest.raises(IndexError, match=r"expected to be in range of \[-2, 1\], but got 2"):
        t.sum(2)
    with pytest.raises(RuntimeError, match="dim 0 appears multiple times in the list of dims"):
        t.sum((0, -2))
    assert t.sum(()).item() == 6 and t.all(()).shape == (2, 3)


def test_truth():
    a = rng.random((40, 70)) < 0.98
    t = as_mica(a)
    for dim in (0, 1):
        assert np.array_equal(t.all(dim).numpy(), a.all(dim)) and np.array_equal((~t).any(dim).numpy(), (~a).any(dim))
    assert mica.tensor([math.nan, 1.0]).all().item() and not mica.tensor([0.0, -0.0]).any().item()
    assert mica.tensor([0j, 1j]).any().item()
    assert (
        mica.ones(3, dtype=mica.uint8).all().dtype == mica.uint8
        and mica.ones(3, dtype=mica.int8).all().dtype == mica.bool
    )
    with pytest.raises(RuntimeError, match="all only supports bool tensor for result, got: Float"):
        mica.all(t, 0, out=mica.zeros(70))


def test_unsupported_dtypes_are_named():
    c = mica.ones(2, dtype=mica.complex64)
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexFloat'"):
        c.amax()
    with pytest.raises(RuntimeError, match=r"max\(\): does not support complex input"):
        c.max(0)
    with pytest.raises(RuntimeError, match=r"argmax\(\): does not support bool input"):
        mica.ones(2, dtype=mica.bool).argmax()
    with pytest.raises(RuntimeError, match="std and var only support floating point and complex dtypes"):
        mica.ones(2, dtype=mica.int64).var()
    with pytest.raises(NotImplementedError, match="not implemented for 'Float8_e5m2'"):
        mica.ones(2).to(mica.float8_e5m2).sum()


def test_out_is_left_alone_by_a_call_that_fails():
    out = mica.full((3,), 7.0, dtype=mica.float64)
    with pytest.raises(RuntimeError, match="Expected the dtype for input and out to match"):
        mica.amax(mica.ones(2, 3), 0, out=out)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype long int, but got double instead"):
        mica.argmax(mica.ones(2, 3), 0, out=out)
    assert out.tolist() == [7.0] * 3


def test_equal_maxima_share_the_gradient():
    t = mica.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], requires_grad=True)
    t.amax(1).sum().backward()
    assert_close(t.grad, [[0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]])
    t.grad = None
    t.max(1).values.sum().backward()
    assert t.grad.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_gradients_where_a_formula_could_divide_by_zero():
    for zeros in ([2.0, 0.0, 3.0], [0.0, 0.0, 3.0]):
        t = mica.tensor(zeros, requires_grad=True, dtype=mica.float64)
        t.prod().backward()
        others = [math.prod(zeros[:i] + zeros[i + 1 :]) for i in range(3)]
        assert t.grad.tolist() == others
    t = mica.zeros(3, requires_grad=True)
    t.norm().backward()
    assert t.grad.tolist() == [0, 0, 0]
    t = mica.ones(3, requires_grad=True)
    t.std().backward()
    assert t.grad.tolist() == [0, 0, 0]


def test_second_derivatives():
    x = mica.randn(3, 4, dtype=mica.float64, requires_grad=True)
    for f in (
        lambda x: x.prod(1),
        lambda x: x.var(0),
        lambda x: x.norm(3, 1),
        lambda x: x.logsumexp(1),
        lambda x: x.std(),
    ):
        assert mica.autograd.gradgradcheck(f, (x,))


def test_counts_and_sums_of_nothing_and_of_little():
    assert mica.ones(2, dtype=mica.int32).sum_to_size(()).dtype == mica.int64
    assert mica.ones(2, dtype=mica.int32).sum_to_size(2).dtype == mica.int32
    assert mica.histogram(mica.zeros(0), 2).bin_edges.tolist() == [0.0, 0.5, 1.0]
    # Bins are reckoned in the dtype of the values: times 100, then by 10.
    values = mica.tensor([-8.5, -1.765625, -4.3125, -2.40625, -7.9375], dtype=mica.bfloat16)
    assert mica.histc(values, 100, -10, 0).nonzero().flatten().tolist() == [15, 20, 56, 76, 82]
    with pytest.raises(RuntimeError, match="cov..: expected fweights to have one or fewer dimensions"):
        mica.cov(mica.zeros(5), fweights=mica.zeros(2, 2))
    with pytest.raises(RuntimeError, match="histogramdd: The size of bins must be equal to the innermost dimension"):
        mica.histogramdd(mica.zeros(4, 3), [2, 2])


@pytest.mark.parametrize(
    "reduce",
    [
        lambda x: x.sum(64),
        lambda x: x.sum((0, 64)),
        lambda x: x.mean(0),
        lambda x: x.amax(64),
        lambda x: x.max(64),
        lambda x: x.argmax(0),
        lambda x: x.any(0),
        lambda x: x.std(64),
        lambda x: x.count_nonzero(64),
        lambda x: mica.logsumexp(x, 64),
        lambda x: mica.linalg.vector_norm(x, dim=64),
        lambda x: x.squeeze((0, 64)),
    ],
)
def test_more_than_64_dimensions_are_refused(reduce):
    with pytest.raises(RuntimeError, match="only tensors with up to 64 dims are supported"):
        reduce(mica.ones([1] * 64 + [2]))


def test_what_works_in_any_number_of_dimensions():
    x = mica.arange(2.0).reshape([1] * 64 + [2])
    assert x.sum().item() == 1 and x.squeeze().shape == (2,) and x.squeeze(64).dim() == 65 and x.squeeze(0).dim() == 64
    assert x.permute(list(range(64, -1, -1))).shape[0] == 2 and x.movedim(64, 0).shape[0] == 2
    assert x.flip(64).reshape(-1).tolist() == [1, 0] and (x + x).reshape(-1).tolist() == [0, 2]
    with pytest.raises(RuntimeError, match="duplicate dims are not allowed"):
        x.permute([*range(64), 63])
    with pytest.raises(RuntimeError, match="duplicate dims are not allowed"):
        mica.ones([1] * 66).permute([*range(65), 64])
