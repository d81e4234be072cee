"""Kernels that move whole vectors where memory is dense and aligned: nonzero, dot, triangles and fills, against the
CPU, with tails, odd addresses and strides."""

import mica
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

# A dtype of every size.
SIZES = [mica.uint8, mica.bfloat16, mica.int16, mica.float32, mica.float64, mica.int64, mica.complex64, mica.complex128]


def same(there, here):
    assert there.dtype == here.dtype and there.shape == here.shape
    assert mica.equal(there.cpu(), here)


def numbers(shape, dtype, low=1):
    return mica.randint(low, 100, shape).to(dtype)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("dtype", SIZES)
def test_nonzero(dtype, share):
    for shape in ((1,), (33,), (7, 300), (3, 5, 7, 11), (2, 1, 2049), (2048, 3), (70_001,), (1,) * 20 + (5,)):
        x = numbers(shape, dtype) * (mica.rand(shape) < share).to(dtype)
        same(x.cuda().nonzero(), x.nonzero())
        assert x.cuda().nonzero().stride() == x.nonzero().stride()
        same(x.cuda()[..., 1:].nonzero(), x[..., 1:].nonzero())
        same(x.cuda()[..., ::2].nonzero(), x[..., ::2].nonzero())
        same(
            x.cuda().mT.nonzero() if x.dim() > 1 else x.cuda().nonzero(), x.mT.nonzero() if x.dim() > 1 else x.nonzero()
        )
    rows = mica.empty(0, dtype=mica.int64, device="cuda")
    x = numbers((40, 50), dtype) * (mica.rand(40, 50) < share).to(dtype)
    same(mica.nonzero(x.cuda(), out=rows), x.nonzero())


def test_nonzero_of_negative_zero_and_of_none():
    x = mica.tensor([0.0, -0.0, 1.0, float("nan")])
    assert x.cuda().nonzero().tolist() == [[2], [3]]
    assert mica.zeros(0, 3, device="cuda").nonzero().shape == (0, 2)
    assert mica.tensor(3, device="cuda").nonzero().shape == (1, 0)
    assert mica.tensor(0, device="cuda").nonzero().shape == (0, 0)


def pair(n, dtype):
    return numbers((n,), dtype, -9 if dtype != mica.uint8 else 0) % 10, numbers((n,), dtype, 0) % 7


@pytest.mark.parametrize("n", [1, 3, 511, 8193, 100_003, 1_000_001])
@pytest.mark.parametrize("dtype", [mica.int8, mica.uint8, mica.int16, mica.int32, mica.int64])
def test_dot_of_integers_wraps(dtype, n):
    a, b = (mica.randint(0, 100, (2 * n,)).to(dtype) for _ in range(2))
    for x, y in ((a[:n], b[:n]), (a[1 : n + 1], b[:n]), (a[::2], b[n:]), (a[::2], b[1::2])):
        want = (x.long() * y.long()).sum().to(dtype).item()
        assert mica.dot(x.cuda(), y.cuda()).item() == want


@pytest.mark.parametrize("n", [1, 3, 511, 8193, 100_003, 1_000_001])
@pytest.mark.parametrize(
    "dtype", [mica.float32, mica.float64, mica.float16, mica.bfloat16, mica.complex64, mica.complex128]
)
def test_dot(dtype, n):
    """Small whole numbers, so that sums are exact in whatever order they are taken, but for the last rounding."""
    few = mica.complex128 if dtype.is_complex else mica.float64
    a, b = (mica.randint(-2, 3, (2 * n,)).to(few) for _ in range(2))
    if dtype.is_complex:
        a, b = a + 1j * mica.randint(-2, 3, (2 * n,)), b - 1j * mica.randint(-2, 3, (2 * n,))
    for x, y in ((a[:n], b[:n]), (a[1 : n + 1], b[:n]), (a[::2], b[n:]), (a[::2], b[1::2])):
        there = [t.to(dtype).cuda() for t in (a, b)]
        step = [slice(t.storage_offset(), None, t.stride(0)) for t in (x, y)]
        u, v = (t[s][:n] for t, s in zip(there, step, strict=True))
        want = (x * y).sum().to(dtype).item()
        assert mica.dot(u, v).item() == want
        assert mica.vdot(u, v).item() == (x.conj() * y).sum().to(dtype).item()
        assert (u[None] @ v[:, None]).item() == want
        assert mica.vdot(u.conj(), v).item() == want


def test_dot_is_the_same_every_time():
    a, b = (mica.randn(2_000_003, device="cuda") for _ in range(2))
    first = mica.dot(a, b)
    assert all(mica.equal(mica.dot(a, b), first) for _ in range(5))
    exact = mica.dot(a.double(), b.double()).item()
    assert abs(first.item() - exact) < 0.05


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (5, 1), (1, 70), (33, 64), (64, 33), (100, 1024), (130, 1001)])
def test_triangles(shape, dtype):
    whole = numbers((3, 2 * shape[0], 2 * shape[1]), dtype)
    rows, columns = shape
    for view in (
        lambda t: t[:, :rows, :columns].contiguous(),
        lambda t: t[0, :rows, :columns],
        lambda t: t[:, :rows, 1 : columns + 1],
        lambda t: t[:, ::2, ::2],
        lambda t: t[:, :columns, :rows].mT if columns <= 2 * rows and rows <= 2 * columns else t[0, :rows, :columns],
        lambda t: t[:, :rows, :columns].permute(1, 2, 0),
    ):
        here, there = view(whole), view(whole.cuda())
        for diagonal in (0, 1, -1, 40, -40, 2000, -2000):
            same(there.tril(diagonal), here.tril(diagonal))
            same(there.triu(diagonal), here.triu(diagonal))
            kept = [whole.clone(), whole.cuda()]
            for t in kept:
                view(t).tril_(diagonal)
            same(kept[1], kept[0])
        out = [mica.zeros(here.shape, dtype=dtype).mT.contiguous().mT for _ in range(2)]
        out[1] = out[1].cuda().mT.contiguous().mT
        mica.triu(here, 1, out=out[0])
        mica.triu(there, 1, out=out[1])
        same(out[1], out[0])


@pytest.mark.parametrize("dtype", SIZES)
def test_fills(dtype):
    value = 3 - 2j if dtype.is_complex else 3
    for n in (1, 17, 4097, 5000, 100_003):
        for begin in (0, 1, 5):
            x = mica.zeros(n + begin + 9, dtype=dtype, device="cuda")
            x[begin : begin + n].fill_(value)
            want = mica.zeros(n + begin + 9, dtype=dtype)
            want[begin : begin + n] = value
            same(x, want)
    for full in (
        mica.full((300, 200), value, dtype=dtype, device="cuda"),
        mica.zeros(300, 200, dtype=dtype).cuda().t(),
    ):
        full.fill_(value)
        assert (full == value).all().item()
    apart = mica.zeros(300, 200, dtype=dtype, device="cuda")
    apart[:, ::2].fill_(value)
    assert (apart[:, ::2] == value).all().item() and (apart[:, 1::2] == 0).all().item()


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("width", [127, 128, 129, 1000, 4099])
def test_index_select_of_rows_apart(width, dtype):
    whole = numbers((40, 2 * width), dtype)
    for view in (
        lambda t: t[:, ::2],
        lambda t: t[:, 1 : width + 1],
        lambda t: t[:, :width],
        lambda t: t[:, :width].t().contiguous().t(),
        lambda t: t[:, :1].expand(40, width),
        lambda t: t.flatten()[: 40 * width].view(width, 40).t(),
        lambda t: t.flatten()[: 40 * width].view(width, 40).t()[::3],
    ):
        here, there = view(whole), view(whole.cuda())
        index = mica.randint(0, here.shape[0], (91,))
        same(there.index_select(0, index.cuda()), here.index_select(0, index))
        same(there[index.cuda() - here.shape[0]], here[index - here.shape[0]])
        same(there[index[:1].cuda()], here[index[:1]])


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("width", [127, 128, 130, 1000, 4099, 20_000])
def test_copies_of_rows(width, dtype):
    whole = numbers((3, 10, 2 * width), dtype)
    for view in (
        lambda t: t[..., ::2],
        lambda t: t[..., 1::2],
        lambda t: t[:, ::2, 1 : width + 1],
        lambda t: t[::2, :, :width],
        lambda t: t[0, :, 1 : width + 2 - width % 2],
        lambda t: t[:, :, :1].expand(3, 10, width),
        lambda t: t[0, 0, ::2],
        lambda t: t[1, 1, 1:],
    ):
        here, there = view(whole), view(whole.cuda())
        same(there.clone(memory_format=mica.contiguous_format), here.contiguous())
        same(there.flip(-1), here.flip(-1))
        same(there.flip(0), here.flip(0))
        same(mica.cat((there, there), -1), mica.cat((here, here), -1))
        same(mica.cat((there, there[..., 3:]), -1), mica.cat((here, here[..., 3:]), -1))
        same(mica.cat((there, there), 0), mica.cat((here, here), 0))
        same(mica.stack((there, there), -1), mica.stack((here, here), -1))
        same(there.repeat(*(2,) * here.dim()), here.repeat(*(2,) * here.dim()))
        kept = [mica.zeros(3, 10, 2 * width, dtype=dtype), mica.zeros(3, 10, 2 * width, dtype=dtype).cuda()]
        for t, source in zip(kept, (here, there), strict=True):
            if not (view(t).stride() and 0 in view(t).stride()):
                view(t).copy_(source)
        same(kept[1], kept[0])


@pytest.mark.parametrize("dtype", SIZES)
def test_joins(dtype):
    for shape in ((1,), (15,), (16,), (70_001,), (30, 64), (3, 5, 7)):
        for count in (2, 3, 5, 70):
            here = [numbers(shape, dtype) for _ in range(count)]
            there = [t.cuda() for t in here]
            for dim in (-1, 0):
                same(mica.stack(there, dim), mica.stack(here, dim))
                same(mica.cat(there, dim), mica.cat(here, dim))
            if shape[-1] > 1:
                # Odd widths at odd addresses.
                there, here = ([t.flatten()[k % 2 :] for k, t in enumerate(ts)] for ts in (there, here))
                same(mica.cat(there), mica.cat(here))
                same(mica.stack([t[-9:] for t in there], 1), mica.stack([t[-9:] for t in here], 1))


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("count", [2, 3, 8, 9, 20])
def test_stacks_of_elements_apart(count, dtype):
    whole = [numbers((12, 10, 140), dtype) for _ in range(count)]
    for view in (
        lambda t: t[..., ::2],
        lambda t: t.permute(2, 0, 1),
        lambda t: t[:, ::3, 5:],
        lambda t: t[0, 0, ::7],
        lambda t: t[:, :1, :1].expand(12, 10, 7),
    ):
        here, there = [view(t) for t in whole], [view(t.cuda()) for t in whole]
        same(mica.stack(there, -1), mica.stack(here, -1))
        # Inputs that lie in different ways.
        here[0], there[0] = here[0].contiguous(), there[0].contiguous()
        same(mica.stack(there, -1), mica.stack(here, -1))
    deep = mica.arange(3**12).reshape((3,) * 12).to(dtype)
    here = [deep[(slice(None, None, 2),) * 12].permute(*range(11, -1, -1))] * 2
    same(mica.stack([t.cuda() for t in here], -1), mica.stack(here, -1))
    deep = mica.arange(2**18).reshape((2,) * 18).to(dtype)
    order = [*range(0, 18, 2), *range(1, 18, 2)][::-1]
    same(mica.stack([deep.cuda().permute(order)] * count, -1), mica.stack([deep.permute(order)] * count, -1))
