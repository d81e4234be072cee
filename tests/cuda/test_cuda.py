"""The CUDA backend against the CPU: the same program on both devices gives the same numbers."""

import math

import mica
import numpy as np
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]
COMPLEX = ["complex64", "complex128"]
ALL = [*FLOATS, *INTEGERS, *COMPLEX, "bool"]
# Half a unit in the last place of a result, and a few for functions that round twice.
TOLERANCE = {
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "float32": 2e-6,
    "float64": 1e-14,
    "complex64": 4e-6,
    "complex128": 1e-14,
}


def random_tensor(shape, dtype, low=-2.0, high=2.0, seed=0):
    rng = np.random.default_rng([seed, math.prod(shape)])
    if dtype == "bool":
        return mica.tensor(rng.integers(0, 2, shape).astype(bool).tolist(), dtype=mica.bool).view(shape)
    if dtype in INTEGERS:
        values = rng.integers(0 if dtype == "uint8" else -5, 9, shape)
        return mica.tensor(values.tolist(), dtype=getattr(mica, dtype)).view(shape)
    values = rng.uniform(low, high, shape)
    if dtype in COMPLEX:
        values = values + 1j * rng.uniform(low, high, shape)
    return mica.tensor(values.tolist(), dtype=getattr(mica, dtype)).view(shape)


def numbers(t):
    t = t.detach().cpu()
    wide = {mica.float16: mica.float32, mica.bfloat16: mica.float32}.get(t.dtype, t.dtype)
    return np.array(t.to(wide).tolist()).reshape(tuple(t.shape))  # a list without elements has lost its shape


def assert_same(on_gpu, on_cpu, factor=1.0):
    assert on_gpu.device == mica.device("cuda:0")
    assert on_gpu.dtype == on_cpu.dtype and on_gpu.shape == on_cpu.shape and on_gpu.stride() == on_cpu.stride()
    rtol = factor * TOLERANCE.get(str(on_cpu.dtype).removeprefix("mica.").removeprefix("torch."), 0.0)
    np.testing.assert_allclose(numbers(on_gpu), numbers(on_cpu), rtol=rtol, atol=rtol)


def layouts(shape, dtype, **kwargs):
    """One tensor in several layouts: contiguous, transposed, every other element, expanded, 0-dim, empty, unaligned."""
    x = random_tensor(shape, dtype, **kwargs)
    yield x
    yield x.t()
    yield x[:, ::2]
    yield x[1:2].expand(shape)
    yield x[0, 0]
    yield x[:0]
    yield x.view(-1)[1:]


UNARY = {
    "neg": [*FLOATS, *INTEGERS, *COMPLEX],
    "abs": [*FLOATS, *INTEGERS, *COMPLEX],
    "reciprocal": FLOATS + COMPLEX,
    "exp": FLOATS + COMPLEX,
    "log": FLOATS + COMPLEX,
    "sin": FLOATS + COMPLEX,
    "cos": FLOATS + COMPLEX,
    "tanh": FLOATS + COMPLEX,
    "sigmoid": FLOATS + COMPLEX,
    "sqrt": FLOATS + COMPLEX,
    "rsqrt": FLOATS + COMPLEX,
    "relu": FLOATS + INTEGERS,
    "sign": [*FLOATS, *INTEGERS, "bool"],
    "sgn": ALL,
    "bitwise_not": [*INTEGERS, "bool"],
    "logical_not": ALL,
    "isnan": FLOATS,
    "floor": FLOATS,
    "ceil": FLOATS,
    "round": FLOATS,
    "trunc": FLOATS,
    "expm1": FLOATS,
    "log1p": FLOATS,
    "erf": FLOATS,
}


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, dtypes in UNARY.items() for d in dtypes])
def test_unary(name, dtype):
    positive = name in ("log", "sqrt", "rsqrt", "log1p", "reciprocal")
    for x in layouts((6, 37), dtype, low=0.1 if positive else -2.0):
        f = getattr(mica, name)
        assert_same(
            f(x.cuda()), f(x), factor=4.0 if dtype in ("float32", "complex64", "float64", "complex128") else 1.0
        )


BINARY = {
    "add": ALL,
    "sub": [*FLOATS, *INTEGERS, *COMPLEX],
    "mul": ALL,
    "div": FLOATS + COMPLEX,
    "maximum": [*FLOATS, *INTEGERS, "bool"],
    "minimum": [*FLOATS, *INTEGERS, "bool"],
    "eq": ALL,
    "ne": ALL,
    "lt": [*FLOATS, *INTEGERS, "bool"],
    "le": [*FLOATS, *INTEGERS, "bool"],
    "gt": [*FLOATS, *INTEGERS, "bool"],
    "ge": [*FLOATS, *INTEGERS, "bool"],
    "bitwise_and": [*INTEGERS, "bool"],
    "bitwise_or": [*INTEGERS, "bool"],
    "bitwise_xor": [*INTEGERS, "bool"],
    "logical_and": ALL,
    "pow": FLOATS,
}


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, dtypes in BINARY.items() for d in dtypes])
def test_binary(name, dtype):
    f = getattr(mica, name)
    low = 0.1 if name in ("pow", "div") else -2.0
    a = random_tensor((6, 37), dtype, low=low)
    for b in (
        random_tensor((6, 37), dtype, low=low, seed=1),
        random_tensor((37,), dtype, low=low, seed=1),
        random_tensor((6, 1), dtype, low=low, seed=1),
        random_tensor((37, 6), dtype, low=low, seed=1).t(),
        random_tensor((), dtype, low=low, seed=1),
    ):
        factor = 4.0 if name in ("pow", "div") or dtype in COMPLEX else 1.0
        assert_same(f(a.cuda(), b.cuda()), f(a, b), factor=factor)
        if b.shape == a.shape:
            assert_same(f(a.t().cuda(), b.t().cuda()), f(a.t(), b.t()), factor=factor)


def test_numbers_and_zero_dim_cpu_tensors():
    x = random_tensor((5, 7), "float32")
    assert_same(x.cuda() + 2.5, x + 2.5)
    assert_same(3 - x.cuda(), 3 - x)
    assert_same(mica.add(x.cuda(), x.cuda(), alpha=-2), mica.add(x, x, alpha=-2))
    assert_same(x.cuda() * mica.tensor(1.5), x * 1.5)
    assert_same(mica.tensor(2.0) / x.cuda(), 2.0 / x)
    for exponent in (2, 3, 0.5, -1, -2, 1.7):
        y = x.abs() + 0.5
        assert_same(y.cuda() ** exponent, y**exponent, factor=4)


@pytest.mark.parametrize("to", [*ALL, "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"])
def test_copy_between_dtypes(to):
    if not hasattr(mica, to):
        pytest.skip(f"mica has no {to}")
    for dtype in ALL:
        for x in (
            random_tensor((6, 33), dtype, low=0.0, high=9.0),
            random_tensor((6, 33), dtype, low=0.0, high=9.0).t(),
        ):
            x = x.abs() if dtype in INTEGERS else x
            gpu, cpu = x.cuda().to(getattr(mica, to)), x.to(getattr(mica, to))
            assert gpu.dtype == cpu.dtype and gpu.stride() == cpu.stride()
            assert gpu.cpu().to(mica.complex128).tolist() == cpu.to(mica.complex128).tolist(), (dtype, to)


def test_layouts_survive_the_way():
    x = mica.arange(24.0).view(2, 3, 4)
    for y in (x, x.permute(2, 0, 1), x[:, ::2], x[0], x.expand(5, 2, 3, 4), x[:, :0]):
        assert y.cuda().cpu().tolist() == y.tolist()
        assert (
            y.cuda().permute(*reversed(range(y.dim()))).contiguous().tolist()
            == y.permute(*reversed(range(y.dim()))).tolist()
        )
    big = random_tensor((130, 257), "float32")
    assert big.cuda().t().contiguous().tolist() == big.t().tolist()
    target = mica.zeros(3, 4, device="cuda").t()
    target.copy_(x[0].t())
    assert target.tolist() == x[0].t().tolist()
    deep = mica.arange(2.0**14).view([2] * 14).permute(*range(13, -1, -1))
    assert deep.cuda().contiguous().cpu().tolist() == deep.tolist()


def test_creation():
    assert mica.arange(5, device="cuda").tolist() == [0, 1, 2, 3, 4]
    assert mica.arange(0, 1, 0.25, device="cuda").tolist() == [0.0, 0.25, 0.5, 0.75]
    assert mica.full((2, 2), 7, device="cuda:0").tolist() == [[7, 7], [7, 7]]
    assert mica.zeros(3, device="cuda", dtype=mica.bfloat16).tolist() == [0.0] * 3
    assert mica.ones(2, dtype=mica.complex64, device="cuda").tolist() == [1, 1]
    assert mica.tensor([[1, 2]], device="cuda").device == mica.device("cuda", 0)
    assert "device='cuda:0'" in repr(mica.ones(2, device="cuda"))


def test_selection():
    a, b = random_tensor((6, 9), "float32"), random_tensor((6, 9), "float32", seed=1)
    mask = a > 0
    assert_same(mica.where(mask.cuda(), a.cuda(), b.cuda()), mica.where(mask, a, b))
    assert_same(mica.where(mask.cuda(), a.cuda(), 0.5), mica.where(mask, a, 0.5))
    assert_same(a.cuda().masked_fill(mask.cuda(), -1), a.masked_fill(mask, -1))
    assert_same(a.cuda().clamp(-0.5, 0.5), a.clamp(-0.5, 0.5))
    index = mica.tensor([[0, 5, 2], [1, 1, 0]])
    assert_same(a.cuda().gather(0, index.cuda()), a.gather(0, index))
    assert_same(a.cuda().index_select(1, mica.tensor([3, 0, 3]).cuda()), a.index_select(1, mica.tensor([3, 0, 3])))


# Half the distance of one to the next number: of the result's format, and of the one in which terms are added up.
RESULT_ROUNDING = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "complex64": 2**-24}
SUM_ROUNDING = {"float64": 2**-53, "complex128": 2**-53}  # 2**-24 for the others


def assert_sum(x, dim, keepdim=False):
    """Within what rounding can do: the result is rounded once, and every term goes through few additions.

    A sum in blocks adds a term to at most 64 others in a row and then up a tree, so that its error is at most
    (64 + log2 n) roundings of the sum of the absolute values, whatever cancels.
    """
    dims = tuple(range(x.dim())) if dim is None else dim
    result = x.cuda().sum(dims, keepdim=keepdim)
    dtype = str(x.dtype).rsplit(".", 1)[-1]
    if dtype not in FLOATS + COMPLEX:
        return assert_same(result, x.sum(dims, keepdim=keepdim))
    wide = x.to(mica.complex128 if dtype in COMPLEX else mica.float64)
    total = wide.sum(dims, keepdim=keepdim)
    exact, magnitude = numbers(total), numbers(wide.abs().sum(dims, keepdim=keepdim))
    assert result.dtype == x.dtype and result.shape == total.shape and result.device == mica.device("cuda:0")
    additions = 64 + math.log2(max(x.numel(), 1))
    bound = (
        1.01 * RESULT_ROUNDING.get(dtype, 0) * np.abs(exact) + SUM_ROUNDING.get(dtype, 2**-24) * additions * magnitude
    )
    error = np.abs(numbers(result) - exact)
    assert (error <= bound + 1e-300).all(), (x.shape, dim, dtype, error.max(), bound.max())


@pytest.mark.parametrize("dtype", ALL)
def test_sums(dtype):
    for shape in ((4, 5, 6), (3, 20000), (20000, 3), (70, 1000), (1000, 70), (1,), (0, 4)):
        x = random_tensor(shape, dtype)
        assert_sum(x, None)
        for d in range(x.dim()):
            assert_sum(x, d)
            assert_sum(x, d, keepdim=True)
        if x.dim() == 3:
            assert_sum(x.permute(2, 0, 1), (0, 2))
            assert_sum(x[:, ::2], (0, 1))


def test_other_reductions():
    for shape in ((4, 5, 6), (3, 3000), (3000, 3)):
        x = random_tensor(shape, "float32")
        assert_same(x.cuda().mean(), x.mean(), factor=100)
        assert_same(x.cuda().mean(0), x.mean(0), factor=100)
        for f in ("amax", "amin"):
            assert_same(getattr(x.cuda(), f)(), getattr(x, f)())
            assert_same(getattr(x.cuda(), f)(1), getattr(x, f)(1))
        assert_same((x > 1).cuda().any(0), (x > 1).any(0))
        assert_same((x > -3).cuda().all(), (x > -3).all())
    assert math.isnan(mica.tensor([1.0, float("nan"), 2.0], device="cuda").amax().item())
    assert math.isnan(mica.zeros(0, device="cuda").mean().item())


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "uint8"]
)
def test_matmul(dtype):
    def check(a, b, factor=40.0):
        assert_same(mica.matmul(a.cuda(), b.cuda()), mica.matmul(a, b), factor=factor)

    a, b = random_tensor((33, 65), dtype), random_tensor((65, 17), dtype, seed=1)
    check(a, b)
    check(random_tensor((65, 33), dtype).t(), b)
    check(a, random_tensor((17, 65), dtype).t())
    check(random_tensor((65, 33), dtype).t(), random_tensor((17, 65), dtype).t())
    check(a[::2, ::3], b[: a[::2, ::3].shape[1]])
    check(a[:, :1], b[:1])
    check(a, b[:, 0])
    check(a[0], b)
    check(a[0], b[:, 0])
    check(random_tensor((4, 9, 5), dtype), random_tensor((4, 5, 7), dtype))
    check(random_tensor((4, 9, 5), dtype), random_tensor((5, 7), dtype))
    check(random_tensor((4, 5, 9), dtype).transpose(1, 2), random_tensor((4, 7, 5), dtype).transpose(1, 2))
    check(random_tensor((3, 0), dtype), random_tensor((0, 2), dtype))
    bias = random_tensor((17,), dtype, seed=2)
    assert_same(mica.addmm(bias.cuda(), a.cuda(), b.cuda()), mica.addmm(bias, a, b), factor=40)
    full = random_tensor((33, 17), dtype, seed=3)
    assert_same(
        mica.addmm(full.cuda(), a.cuda(), b.cuda(), beta=2, alpha=3),
        mica.addmm(full, a, b, beta=2, alpha=3),
        factor=100,
    )


def gradients(f, device, *shapes):
    inputs = [random_tensor(s, "float64", low=0.2, seed=i).to(device).requires_grad_() for i, s in enumerate(shapes)]
    f(*inputs).sum().backward()
    return [numbers(x.grad) for x in inputs]


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: a + b * 2 - a / b,
        lambda a, b: (a * b).exp().tanh() + a.sigmoid() * b.relu(),
        lambda a, b: (a @ b.t()).sqrt() + (b**3 @ a.t()).log(),
        lambda a, b: mica.maximum(a, b).sin() * mica.minimum(a, b).cos(),
        lambda a, b: mica.where(a > b, a, b).rsqrt() + a.sum(0) * b.mean(1, keepdim=True),
        lambda a, b: a.t().reshape(-1)[::2] * b.abs().reshape(-1)[: a.numel() // 2],
    ],
)
def test_gradients(f):
    for here, there in zip(gradients(f, "cpu", (6, 6), (6, 6)), gradients(f, "cuda", (6, 6), (6, 6)), strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-12)


def test_a_training_run_takes_the_same_way():
    def train(device):
        x = random_tensor((64, 8), "float32").to(device)
        y = (random_tensor((64, 8), "float32") @ random_tensor((8, 1), "float32", seed=1)).tanh().to(device)
        w1 = (random_tensor((8, 32), "float32", seed=2) * 0.3).to(device).requires_grad_()
        w2 = (random_tensor((32, 1), "float32", seed=3) * 0.3).to(device).requires_grad_()
        losses = []
        for _ in range(50):
            loss = (((x @ w1).relu() @ w2 - y) ** 2).mean()
            loss.backward()
            for w in (w1, w2):
                w.data.sub_(w.grad, alpha=0.1)
                w.grad = None
            losses.append(loss.item())
        return losses

    here, there = train("cpu"), train("cuda")
    np.testing.assert_allclose(there, here, rtol=1e-3)
    assert here[-1] < 0.3 * here[0]


def test_memory_statistics():
    mica.cuda.empty_cache()
    before = mica.cuda.memory_allocated()
    mica.cuda.reset_peak_memory_stats()
    x = mica.zeros(1 << 20, device="cuda")
    assert mica.cuda.memory_allocated() == before + (4 << 20)
    y = x + 1
    del y
    assert mica.cuda.memory_allocated() == before + (4 << 20)
    assert mica.cuda.max_memory_allocated() >= before + (8 << 20)
    reserved = mica.cuda.memory_reserved()
    for _ in range(20):
        x = x * 2  # the memory of the last result is used again
    assert mica.cuda.memory_reserved() <= reserved + (20 << 20)
    del x
    mica.cuda.empty_cache()
    assert mica.cuda.memory_allocated() == before
    assert mica.cuda.memory_reserved() <= reserved
    free, total = mica.cuda.mem_get_info()
    assert 0 < free <= total
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        mica.empty(1 << 45, device="cuda", dtype=mica.uint8)


def test_devices_and_errors():
    assert mica.cuda.device_count() >= 1 and mica.cuda.current_device() == 0 and mica.cuda.get_device_name()
    cudnn = mica.backends.cudnn
    assert cudnn.version() >= 90000 if cudnn.is_available() else cudnn.version() is None
    x, y = mica.ones(2, device="cuda"), mica.ones(2)
    words = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    with pytest.raises(RuntimeError, match=words):
        x + y
    with pytest.raises(RuntimeError, match=words):
        mica.ones(2, 2, device="cuda") @ mica.ones(2, 2)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        mica.ones(2, device="cuda:99")
    with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
        mica.nn.functional.conv1d(
            mica.ones(1, 1, 4, device="cuda", dtype=mica.int32), mica.ones(1, 1, 2, device="cuda", dtype=mica.int32)
        )
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        np.asarray(x)
    assert x.to("cuda") is x and x.cuda() is x


def test_random():
    mica.manual_seed(3)
    a, b = mica.rand(1000, device="cuda"), mica.randn(100000, device="cuda")
    mica.manual_seed(3)
    assert mica.rand(1000, device="cuda").tolist() == a.tolist()
    values = numbers(a)
    assert (values >= 0).all() and (values < 1).all() and 0.4 < values.mean() < 0.6
    normal = numbers(b)
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02
