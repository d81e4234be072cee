"""Products of 8-bit floats on CUDA. Sums of small whole numbers are exact, so that results are compared bit by bit."""

import mica
import mica.nn.functional as F
import pytest
import scaled_product_cases as cases

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

E4, E5 = mica.float8_e4m3fn, mica.float8_e5m2
WIDE = [mica.bfloat16, mica.float16, mica.float32]


def pair(m, k, n, first=E4, second=E4):
    a, b = cases.matrices(mica, (m, k, n), cases.E4, cases.E4)
    return a.to(first).cuda(), b.t().to(second).contiguous().cuda().t()


def number(value):
    return mica.tensor(value, device="cuda")


def exact(a, b, scale_a=1.0, scale_b=1.0):
    return (a.cpu().double() * scale_a) @ (b.cpu().double() * scale_b)


@pytest.mark.parametrize("dtype", [*WIDE, E4, E5], ids=str)
@pytest.mark.parametrize("kinds", [(E4, E4), (E4, E5), (E5, E4)], ids=str)
@pytest.mark.parametrize(
    "sizes", [(16, 16, 16), (1, 32, 16), (17, 48, 64), (256, 512, 128), (300, 1024, 4096)], ids=str
)
def test_scales_of_tensors(sizes, kinds, dtype):
    a, b = pair(*sizes, *kinds)
    expected = exact(a, b, 0.5, 0.25).to(dtype)
    for fast in (False, True):
        out = mica._scaled_mm(a, b, number(0.5), number([0.25]), out_dtype=dtype, use_fast_accum=fast)
        assert out.dtype == dtype and out.shape == expected.shape
        assert out.cpu().double().equal(expected.double())


@pytest.mark.parametrize("dtype", [*WIDE, E4], ids=str)
@pytest.mark.parametrize("sizes", [(1, 32, 16), (17, 48, 64), (256, 512, 128), (260, 1024, 2048)], ids=str)
def test_scales_of_rows(sizes, dtype):
    a, b = pair(*sizes)
    m, _, n = sizes
    rows = (2.0 ** (mica.arange(m) % 3 - 1)).reshape(m, 1)
    columns = (2.0 ** (mica.arange(n) % 4 - 2)).reshape(1, n)
    expected = exact(a, b, rows.double(), columns.double()).to(dtype)
    out = mica._scaled_mm(a, b, rows.cuda(), columns.cuda(), out_dtype=dtype)
    assert out.cpu().double().equal(expected.double())
    recipe = F.ScalingType.RowWise
    out = F.scaled_mm(a, b, rows.cuda(), recipe, columns.cuda(), recipe, output_dtype=dtype)
    assert out.cpu().double().equal(expected.double())


def padded_blocks(values):
    """Scales of 128 x 128 blocks as cuBLASLt wants them: rows of a multiple of four numbers."""
    room = mica.zeros(values.shape[0], (values.shape[1] + 3) // 4 * 4, device="cuda")
    room[:, : values.shape[1]] = values
    return room[:, : values.shape[1]]


@pytest.mark.parametrize("layout", ["of the library", "other"])
@pytest.mark.parametrize("blocks", [(True, False), (False, True), (True, True)], ids=str)  # whether 1 x 128
def test_scales_of_blocks(blocks, layout):
    m, k, n = 256, 384, 512
    a, b = pair(m, k, n)
    by_row = [2.0 ** (mica.arange(size * k // 128) % 5 - 2).reshape(size, k // 128) for size in (m, n)]
    by_block = [2.0 ** (mica.arange(size // 128 * k // 128) % 3 - 1).reshape(size // 128, -1) for size in (m, n)]
    first, second = (by_row[i] if blocks[i] else by_block[i] for i in range(2))
    full = [
        s.repeat_interleave(128, 1) if one else s.repeat_interleave(128, 0).repeat_interleave(128, 1)
        for s, one in ((first, blocks[0]), (second, blocks[1]))
    ]
    expected = exact(a, b, full[0].double(), full[1].t().double())
    if layout == "of the library":
        there = [
            s.t().contiguous().cuda().t() if one else padded_blocks(s.cuda())
            for s, one in ((first, blocks[0]), (second, blocks[1]))
        ]
    else:
        there = [first.cuda(), second.cuda()]
    recipe = [F.ScalingType.BlockWise1x128 if one else F.ScalingType.BlockWise128x128 for one in blocks]
    for dtype in (mica.bfloat16, mica.float32):
        out = F.scaled_mm(a, b, there[0], recipe[0], there[1].t(), recipe[1], output_dtype=dtype)
        assert out.cpu().double().equal(expected.to(dtype).double())
        out = mica._scaled_mm(a, b, there[0], there[1].t(), out_dtype=dtype)
        assert out.cpu().double().equal(expected.to(dtype).double())


@pytest.mark.parametrize(
    "dtype, of_bias", [(mica.bfloat16, mica.bfloat16), (mica.float16, mica.float16), (E4, mica.bfloat16)]
)
def test_bias(dtype, of_bias):
    a, b = pair(33, 64, 48)
    bias = (mica.arange(48) % 5 - 2.0).to(of_bias)
    expected = (exact(a, b) + bias.double()).to(dtype).double()
    for there in (bias.cuda(), bias.cuda().reshape(1, 48), mica.stack([bias, bias], 1).cuda()[:, 0]):
        out = mica._scaled_mm(a, b, number(1.0), number(1.0), bias=there, out_dtype=dtype)
        assert out.cpu().double().equal(expected)


def test_scale_of_the_result():
    """torch checks it on CUDA, and does nothing with it."""
    a, b = pair(32, 64, 48)
    for dtype in (E4, mica.bfloat16, mica.float8_e4m3fnuz):
        out = mica._scaled_mm(a, b, number(1.0), number(1.0), scale_result=number(0.25), out_dtype=dtype)
        assert out.cpu().double().equal(exact(a, b).to(dtype).double())
    with pytest.raises(RuntimeError, match="scale_result must be a float scalar"):
        mica._scaled_mm(a, b, number(1.0), number(1.0), scale_result=number([1.0, 2.0]))


def test_strides_and_places():
    """Parts of larger matrices, a result with its own strides, addresses that no vector may be read from."""
    a, b = pair(64, 96, 80)
    room = mica.zeros(64, 200, dtype=mica.uint8, device="cuda").view(E4)
    for start in (0, 16, 3):
        left = room[:, start : start + 96]
        left.copy_(a)
        out = mica._scaled_mm(left, b, number(1.0), number(1.0), out_dtype=mica.float32)
        assert out.cpu().double().equal(exact(a, b))
    wide = mica.full((64, 100), 7.0, device="cuda", dtype=mica.bfloat16)
    mica._scaled_mm(a, b, number(1.0), number(1.0), out_dtype=mica.bfloat16, out=wide[:, 10:90])
    assert wide[:, 10:90].cpu().double().equal(exact(a, b)) and (wide[:, :10] == 7).all() and (wide[:, 90:] == 7).all()
    turned = mica.empty(80, 64, device="cuda").t()
    mica._scaled_mm(a, b, number(1.0), number(1.0), out=turned)
    assert turned.cpu().double().equal(exact(a, b))


def test_scales_change_between_calls():
    """Plans are shared; the addresses of scales are those of the call."""
    a, b = pair(32, 32, 32)
    results = [
        mica._scaled_mm(a, b, number(x), number(y), out_dtype=mica.float32) for x in (1.0, 2.0, 0.5) for y in (1.0, 4.0)
    ]
    for out, factor in zip(results, (1, 4, 2, 8, 0.5, 2), strict=True):
        assert out.cpu().double().equal(exact(a, b) * factor)


def test_graph_capture():
    a, b = pair(64, 64, 64)
    scale = number(1.0)
    mica._scaled_mm(a, b, scale, scale, out_dtype=mica.bfloat16)
    graph = mica.cuda.CUDAGraph()
    with mica.cuda.graph(graph):
        out = mica._scaled_mm(a, b, scale, scale, out_dtype=mica.bfloat16)
    scale.fill_(0.5)
    graph.replay()
    assert out.cpu().double().equal(exact(a, b, 0.5, 0.5))


def test_nothing_to_sum_and_nothing_to_fill():
    a, b = pair(16, 16, 16)
    out = mica._scaled_mm(a[:, :0], b[:0], number(1.0), number(1.0), out_dtype=mica.float32)
    assert out.shape == (16, 16) and not out.any()
    assert mica._scaled_mm(a[:0], b, number(1.0), number(1.0)).shape == (0, 16)


def test_refusals():
    a, b = pair(32, 32, 32)
    one = number(1.0)
    refused = [
        (
            "Expected trailing dimension of mat1 to be divisible by 16",
            lambda: mica._scaled_mm(a[:, :8], b[:8], one, one),
        ),
        ("must be divisible by 16", lambda: mica._scaled_mm(a, b[:, :8], one, one)),
        ("row-major and column-major", lambda: mica._scaled_mm(a, b.contiguous(), one, one)),
        ("row-major and column-major", lambda: mica._scaled_mm(a.t().contiguous().t(), b, one, one)),
        ("Invalid scaling configuration", lambda: mica._scaled_mm(a, b, one, mica.ones(1, 32, device="cuda"))),
        ("Bias must be size 32", lambda: mica._scaled_mm(a, b, one, one, bias=one)),
        (
            "Bias is not supported when out_dtype is set to Float32",
            lambda: mica._scaled_mm(a, b, one, one, bias=mica.ones(32, device="cuda"), out_dtype=mica.float32),
        ),
        (
            "Bias must be BFloat16 to compute BFloat16",
            lambda: mica._scaled_mm(a, b, one, one, bias=mica.ones(32, device="cuda").half(), out_dtype=mica.bfloat16),
        ),
        ("must be a matrix", lambda: mica._scaled_mm(a[0], b, one, one)),
    ]
    for words, call in refused:
        with pytest.raises(RuntimeError, match=words):
            call()
    with pytest.raises(ValueError, match="Multiplication of two Float8_e5m2"):
        mica._scaled_mm(a.to(E5), b.to(E5), one, one)
    with pytest.raises(RuntimeError, match="same device"):
        mica._scaled_mm(a, b, mica.tensor(1.0), one)
