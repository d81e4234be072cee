"""Kernels that hold a row at a time, or turn tiles of a matrix, against the CPU."""

import mica
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

INF, NAN = float("inf"), float("nan")
FLOATS = [mica.float32, mica.bfloat16, mica.float16, mica.float64]
SIZES = [mica.uint8, mica.bfloat16, mica.float32, mica.int64, mica.complex128]


def same(there, here):
    assert there.shape == here.shape and there.dtype == here.dtype
    mica.testing.assert_close(there.cpu(), here, rtol=0, atol=0, equal_nan=True)


def close(there, here, dtype):
    """Against float64 on the CPU."""
    tolerance = {mica.float64: 1e-9, mica.float32: 2e-5, mica.float16: 2e-3, mica.bfloat16: 2e-2}[dtype]
    mica.testing.assert_close(there.cpu().double(), here.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


def numbers(shape, dtype):
    return mica.randint(0, 200, shape).to(dtype)


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("width", [1024, 3000, 3072])
def test_gather_answers_whole_rows(width, dtype):
    for rows, count in ((300, width), (150, 2 * width - 3), (300, width // 2)):
        table, index = numbers((rows, width), dtype), mica.randint(0, width, (rows, count))
        same(table.cuda().gather(1, index.cuda()), table.gather(1, index))
    # Rows that begin anywhere, of three dimensions, and of more of the table than is asked for.
    table, index = numbers((20, 15, width + 5), dtype)[:, 1:, 3:], mica.randint(0, width, (18, 12, width))
    same(table.cuda().gather(2, index.cuda()), table.gather(2, index))
    inner = numbers((20, 15, width + 5), dtype).cuda()[:, 1:, 3:]
    same(inner.gather(2, index.cuda()), inner.cpu().gather(2, index))


def test_gather_names_a_wrong_index():
    table, index = mica.rand(200, 2048).cuda(), mica.zeros(200, 2048, dtype=mica.int64)
    index[150, 7] = 2048
    table.gather(1, index.cuda())
    with pytest.raises(IndexError, match="2048"):
        mica.cuda.synchronize()


@pytest.mark.parametrize("dtype", SIZES)
def test_index_select_moves_long_rows(dtype):
    for shape in ((40, 8192), (33, 4099), (7, 20000), (9, 16, 1024)):
        table, index = numbers(shape, dtype), mica.randint(0, shape[0], (50,))
        same(table.cuda().index_select(0, index.cuda()), table.index_select(0, index))
        same(table.cuda()[:, 8:].index_select(0, index.cuda()), table[:, 8:].index_select(0, index))
        same(table.cuda()[index.cuda() - shape[0]], table[index])


@pytest.mark.parametrize("dtype", [*FLOATS, mica.int64, mica.int32, mica.uint8])
@pytest.mark.parametrize("shape", [(5, 8192), (3, 8193), (2, 100003), (300, 4100), (1, 7), (4, 0), (600, 33)])
def test_running_sums_of_rows(shape, dtype):
    x = mica.randint(-2, 3, shape).to(dtype) if dtype != mica.uint8 else mica.randint(0, 3, shape).to(dtype)
    same(x.cuda().cumsum(1), x.cumsum(1))
    same(x.cuda()[:, 1:].cumsum(1), x[:, 1:].cumsum(1))
    same(x.cuda().t().cumsum(0), x.t().cumsum(0))
    same(x.cuda().cummax(1).values, x.cummax(1).values)
    same(x.cuda().cummin(1).indices, x.cummin(1).indices)
    if dtype.is_floating_point and shape[1] > 9:
        x[0, 7] = NAN
        x[-1, 5] = INF
        same(x.cuda().cumsum(1), x.cumsum(1))
        same(x.cuda().cummin(1).indices, x.cummin(1).indices)


def test_running_sums_of_any_numbers():
    x = mica.randn(64, 8192)
    # Sums of hundreds, in steps of 2e-5 each, pass zero.
    mica.testing.assert_close(x.cuda().cumsum(1).cpu().double(), x.double().cumsum(1), rtol=1e-5, atol=2e-4)
    close(x.cuda().logcumsumexp(1), x.double().logcumsumexp(1), mica.float32)
    x = mica.rand(3, 5000) * 0.2 + 0.9
    close(x.cuda().cumprod(1), x.double().cumprod(1), mica.float32)


@pytest.mark.parametrize("dtype", SIZES)
def test_transposed_copies(dtype):
    for shape in ((64, 64), (200, 104), (65, 130), (1024, 72), (3, 128, 64), (5, 96, 68), (2, 67, 129)):
        x = numbers(shape, dtype)
        same(x.cuda().transpose(-1, -2).contiguous(), x.transpose(-1, -2).contiguous())
        part = numbers((*shape[:-2], shape[-2] + 8, shape[-1] + 8), dtype)[..., 4:-4, 4:-4]
        same(part.cuda().transpose(-1, -2).contiguous(), part.transpose(-1, -2).contiguous())


@pytest.mark.parametrize("dtype", [mica.float32, mica.bfloat16, mica.float16, mica.float64, mica.int32])
def test_sums_and_products_with_a_transposed_matrix(dtype):
    for rows, columns in ((64, 64), (200, 104), (130, 65), (72, 1024)):
        a, b = numbers((rows, columns), dtype), numbers((columns, rows), dtype)
        there = a.cuda(), b.cuda()
        same(there[0] + there[1].t(), a + b.t())
        same(there[1].t() - there[0], b.t() - a)
        same(mica.add(there[0], there[1].t(), alpha=3), (a.double() + 3 * b.t().double()).to(dtype))  # rounded once
        same(there[1].t() * there[0], b.t() * a)
        same(there[0].clone().add_(there[1].t()), a.clone().add_(b.t()))
    a, b = numbers((3, 128, 64), dtype), numbers((3, 64, 128), dtype)
    same(a.cuda() + b.cuda().transpose(1, 2), a + b.transpose(1, 2))
    row = numbers((64,), dtype)
    same(a.cuda() + row.cuda().expand(3, 128, 64), a + row)


ORDERED = [*FLOATS, mica.int64, mica.int32, mica.int16, mica.int8, mica.uint8]


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("shape", [(9, 8192), (300, 1001), (1, 70000), (500, 6), (200, 40)])
def test_extrema_and_where_they_stand(shape, dtype):
    x = (mica.randint(0, 90, shape) - (0 if dtype == mica.uint8 else 40)).to(dtype)
    if dtype.is_floating_point:
        x[0] = -INF
        x[-1, 3:5] = NAN
    there = x.cuda()
    for dim in (0, 1):
        for name in ("argmax", "argmin", "amax", "amin"):
            same(getattr(there, name)(dim), getattr(x, name)(dim))
        for name in ("max", "min"):
            got, want = getattr(there, name)(dim), getattr(x, name)(dim)
            same(got.values, want.values)
            same(got.indices, want.indices)
    for name in ("max", "min", "argmax", "argmin"):
        same(getattr(there, name)(), getattr(x, name)())
    same(there.t().argmax(1), x.t().argmax(1))
    low, high = mica.aminmax(there, dim=1)
    same(low, x.amin(1))
    same(high, x.amax(1))


def test_extrema_of_bools():
    x = mica.rand(70, 300) > 0.99
    for name in ("amax", "amin", "any", "all"):
        same(getattr(x.cuda(), name)(1), getattr(x, name)(1))
    same(x.cuda().sum(1), x.sum(1))
    same(x.cuda().sum(1, dtype=mica.bool), x.sum(1, dtype=mica.bool))
    same(x.cuda().prod(0, dtype=mica.bool), x.prod(0, dtype=mica.bool))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(9, 8192), (300, 1001), (2, 70000), (500, 6), (40, 4)])
def test_moments_of_rows(shape, dtype):
    x = (mica.randn(shape) + 5).to(dtype)
    there, wide = x.cuda(), x.double()
    for dim in (0, 1):
        close(there.var(dim), wide.var(dim), dtype)
        close(there.std(dim, correction=0), wide.std(dim, correction=0), dtype)
        close(there.logsumexp(dim), wide.logsumexp(dim), dtype)
        close(there.mean(dim), wide.mean(dim), dtype)
        close(there.norm(dim=dim), wide.norm(dim=dim), dtype)
        close(there.norm(3, dim=dim), wide.norm(3, dim=dim), dtype)
    close(there[:, 1:].var(1), wide[:, 1:].var(1), dtype)
    if dtype.itemsize == 2:
        assert there.sum(1, dtype=mica.float32).dtype == mica.float32
        close(there.sum(1, dtype=mica.float32), wide.sum(1), mica.float32)
        close(mica.linalg.vector_norm(there, dim=1, dtype=mica.float32), wide.norm(dim=1), mica.float32)


def test_logsumexp_of_infinities():
    x = mica.randn(6, 4096)
    x[0] = -INF
    x[1, 5:] = -INF
    x[2, 7] = INF
    x[3, 9] = NAN
    x[4] = INF
    close(x.cuda().logsumexp(1), x.double().logsumexp(1), mica.float32)
    close(x.cuda().t().logsumexp(0), x.double().logsumexp(1), mica.float32)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(5, 8192), (3, 4096 + 5), (2, 100_003), (300, 1000), (1, 1 << 20)])
def test_rows_that_many_threads_share(shape, dtype):
    """Loads come in batches, and the totals of warps meet: rows of whole batches, of pieces that are left, of many blocks."""
    x = (mica.randn(shape) * 3 + 40).to(dtype)
    x[0, shape[1] // 2] = 90.0  # the largest comes late
    x[-1, 0] = -700.0
    there, wide = x.cuda(), x.double()
    close(there.logsumexp(1), wide.logsumexp(1), dtype)
    close(there.logsumexp((0, 1)), wide.logsumexp((0, 1)), dtype)
    close(there.var(1), wide.var(1), dtype)
    close(there.std((0, 1)), wide.std((0, 1)), dtype)
    assert there.argmax(1).tolist() == x.argmax(1).tolist() and there.argmin(1).tolist() == x.argmin(1).tolist()
    assert there.sum(1, dtype=mica.float64).sub(wide.sum(1).cuda()).abs().max().item() <= 1e-9 * shape[1] * 100


def test_logsumexp_is_exact_where_it_can_be():
    logits = mica.randn(64, 5000, dtype=mica.float64)
    of_one = logits.log_softmax(1).float()  # sums to one: the logarithm is next to zero
    assert of_one.cuda().logsumexp(1).abs().max().item() < 5e-7
    far = mica.full((4, 8192), -60.0)
    far[:, 17] = 10000.25
    assert far.cuda().logsumexp(1).tolist() == [10000.25] * 4
    equal = mica.full((3, 4096), 5.0)
    close(equal.cuda().logsumexp(1), equal.double().logsumexp(1), mica.float32)


@pytest.mark.parametrize("dtype", [*FLOATS, mica.int64, mica.int32, mica.int16, mica.int8, mica.uint8])
@pytest.mark.parametrize("n", [40, 700, 8192, 300_001])
def test_the_first_of_equal_extrema(n, dtype):
    """Whichever thread, warp or block has seen it."""
    x = mica.ones(6, n, dtype=dtype)
    x[1, [n // 3, n // 2, n - 1]] = 2
    x[2, [n - 2, n // 5]] = 0
    if dtype.is_floating_point:
        x[3] = -INF
        x[4, [n - 3, n // 2 + 1]] = NAN
        x[5] = 0.0
        x[5, 2] = -0.0
    there = x.cuda()
    for name in ("argmax", "argmin"):
        same(getattr(there, name)(1), getattr(x, name)(1))
        same(getattr(there, name)(), getattr(x, name)())
    for name in ("max", "min"):
        values, indices = getattr(there, name)(1)
        wanted = getattr(x, name)(1)
        same(indices, wanted.indices)
        close(values, wanted.values, mica.float64)


@pytest.mark.parametrize("dtype", [mica.int64, mica.int32, mica.int16, mica.int8, mica.uint8, mica.uint16, mica.uint32])
def test_sums_of_integers(dtype):
    x = (mica.randint(0, 100, (300, 1001)) - (0 if "uint" in str(dtype) else 50)).to(dtype)
    for dim in (0, 1):
        same(x.cuda().sum(dim), x.sum(dim))
    small = mica.randint(1, 3, (50, 9)).to(dtype)
    same(small.cuda().prod(1), small.prod(1))
    same(x.cuda().count_nonzero(1), x.count_nonzero(1))


@pytest.mark.parametrize("n", [1, 1000, 5_000_000])
def test_counts_of_what_a_mask_takes(n):
    x = mica.randint(0, 7, (n,))
    mask = x > 3
    same(x.cuda()[mask.cuda()], x[mask])
    same(x.cuda().nonzero(), x.nonzero())
    for got, want in zip(
        mica.unique(x.cuda(), return_inverse=True, return_counts=True),
        mica.unique(x, return_inverse=True, return_counts=True),
        strict=True,
    ):
        same(got, want)


@pytest.mark.parametrize("dtype", [mica.float64, mica.complex64, mica.complex128, mica.int16, mica.uint16])
def test_loops_without_vectors(dtype):
    """Dtypes whose elements are walked over one at a time, dense or not."""
    x, y = (mica.randint(1, 9, (130, 513)).to(dtype) for _ in range(2))
    for here in ((x, y), (x[1:, 1:], y[:-1, :-1]), (x.t(), y.t())):
        there = [t.cuda() for t in here]
        same(there[0] + there[1], here[0] + here[1])
        same(there[0] * there[1], here[0] * here[1])
        same(-there[0], -here[0])


@pytest.mark.parametrize("dtype", [mica.float32, mica.bfloat16, mica.float16])
def test_strided_floats_share_a_loop(dtype):
    x, y = (mica.randn(70, 90).to(dtype) for _ in range(2))
    for here in ((x[:, ::2], y[:, 1::2]), (x.t(), y.t())):
        a, b = here
        for f in (lambda a, b: a - b, lambda a, b: mica.where(a > b, a, b), mica.maximum, lambda a, b: a * 2.5):
            same(f(a.cuda(), b.cuda()), f(a, b))
        close(a.cuda().tanh(), a.double().tanh(), dtype)
        close((a.cuda() / (b.cuda().abs() + 1)), a.double() / (b.double().abs() + 1), dtype)
    wide = mica.randn(70, 90)
    same(x.cuda()[:, ::3] + wide.cuda()[:, ::3], x[:, ::3] + wide[:, ::3])
    same(wide.cuda()[:, ::3].to(dtype), wide[:, ::3].to(dtype))


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("n", [1, 15, 4097, 100_003])
def test_what_a_mask_takes(n, dtype):
    x = numbers((n,), dtype)
    for share in (0.0, 0.1, 0.9, 1.0):
        mask = mica.rand(n) < share
        same(x.cuda()[mask.cuda()], x[mask])
        same(x.cuda()[1:].masked_select(mask.cuda()[1:]), x[1:].masked_select(mask[1:]))
    grid, rows = numbers((70, 33), dtype), mica.rand(70, 1) < 0.5
    same(grid.cuda().masked_select(rows.cuda()), grid.masked_select(rows))
    same(grid.cuda().t().masked_select(rows.cuda().t()), grid.t().masked_select(rows.t()))
    many = mica.randint(0, 256, (n,)).to(mica.uint8)
    same(many.cuda().nonzero(), many.nonzero())


def test_what_a_mask_takes_of_many():
    x = mica.arange((1 << 24) + 4099).float()
    mask = mica.rand(x.shape) < 0.5
    same(x.cuda()[mask.cuda()], x[mask])
    same(mask.cuda().nonzero(), mask.nonzero())


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", [128, 256, 512, 768, 1024, 2048, 765, 766, 770])
def test_gradients_of_norms_whose_rows_fill_a_tile_or_do_not(width, dtype, name, weighted):
    """Rows that fill the registers of their threads have a kernel without bounds; others, and unaligned ones, do not."""
    scale = (0.5 + mica.rand(width)).to(dtype)
    shift = mica.randn(width).to(dtype)
    for rows, first in ((3, 0), (700, 0), (5, 1)):
        x = mica.randn(rows, width + first).to(dtype)[:, first:]
        grad = mica.randn(rows, width).to(dtype)

        def gradients(move, x=x, grad=grad):
            leaf = move(x).detach().requires_grad_()
            parameters = [
                move(t).detach().requires_grad_() for t in ((scale, shift) if name == "layer_norm" else (scale,))
            ]
            given = parameters if weighted else []
            y = getattr(mica.nn.functional, name)(leaf, (width,), *given)
            return mica.autograd.grad(y, (leaf, *given), move(grad))

        there, here = gradients(lambda t: t.cuda()), gradients(lambda t: t.double())
        close(there[0], here[0], dtype)
        for t, h in zip(there[1:], here[1:], strict=True):
            tolerance = {mica.float64: 1e-9, mica.float32: 1e-4, mica.float16: 4e-3, mica.bfloat16: 3e-2}[dtype]
            assert (t.cpu().double() - h).abs().max() <= tolerance * h.abs().max()
