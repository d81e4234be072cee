"""An element's bits do not depend on its neighbours or on where it lies: what is cut into pieces gives the same numbers."""

import mica as torch
import pytest

aten, functional = torch.ops.aten, torch.nn.functional
ONE = [
    *(getattr(torch, name) for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "digamma", "erf", "erfc", "erfinv", "exp", "exp2",
        "expm1", "i0", "lgamma", "log", "log10", "log1p", "log2", "logit", "reciprocal", "rsqrt", "sigmoid", "sin", "sinc",
        "sinh", "sqrt", "tan", "tanh",
    )),
    *(getattr(functional, name) for name in (
        "gelu", "silu", "mish", "softplus", "elu", "selu", "celu", "hardswish", "logsigmoid", "softsign", "tanhshrink",
    )),
    lambda x: functional.gelu(x, approximate="tanh"),
    lambda x: x.abs().pow(2.5),
    lambda x: x.pow(3),
]  # fmt: skip
TWO = [
    *(getattr(torch, name) for name in (
        "div", "atan2", "hypot", "pow", "fmod", "remainder", "logaddexp", "logaddexp2", "floor_divide", "xlogy",
    )),
    aten.gelu_backward, lambda g, x: aten.gelu_backward(g, x, approximate="tanh"), aten.silu_backward, aten.mish_backward,
    aten.hardswish_backward, aten.hardsigmoid_backward, aten.tanh_backward, aten.sigmoid_backward,
    lambda g, x: aten.softplus_backward(g, x, 1, 20),
]  # fmt: skip


def same(a, b):
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("count, functions", [(1, ONE), (2, TWO)], ids=["one argument", "two arguments"])
def test_bits_do_not_depend_on_neighbours(count, functions, dtype):
    generator = torch.Generator().manual_seed(3)
    inputs = [(torch.randn(531, generator=generator) * 3).to(dtype) for _ in range(count)]
    for function in functions:
        name, whole = getattr(function, "__name__", str(function)), function(*inputs)
        for cut in (1, 2, 3, 5, 7, 18):
            assert same(whole[cut:], function(*(x[cut:].clone() for x in inputs))), (name, cut)
            assert same(whole[:-cut], function(*(x[:-cut].clone() for x in inputs))), (name, -cut)
        assert same(whole, function(*(torch.stack([x, x], 1)[:, 1] for x in inputs))), name
        assert same(whole[:, None].expand(-1, 3), function(*(x[:, None].expand(-1, 3) for x in inputs))), name


COMPLEX = {
    "mul": lambda x, y: x * y,
    "mul by a conjugate": lambda x, y: x * y.conj(),
    "mul by a number": lambda x, y: x * (1 + 2j),
    "div": lambda x, y: x / y,
    "add": lambda x, y: torch.add(x, y, alpha=0.5 + 1j),
    "rsub": lambda x, y: torch.rsub(x, y, alpha=0.5 + 1j),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5 - 1j),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5 - 1j),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "square": lambda x, y: x.square(),
    "cube": lambda x, y: x**3,
    "sigmoid_backward": aten.sigmoid_backward,
    "tanh_backward": aten.tanh_backward,
    "silu": lambda x, y: functional.silu(x),
    "silu_backward": lambda x, y: aten.silu_backward(x, y),
    "sgn": lambda x, y: x.sgn(),
    "abs": lambda x, y: x.abs(),
    "prod of columns": lambda x, y: torch.stack([x, y, x]).prod(0),
    "cumprod of columns": lambda x, y: torch.stack([x, y, x]).cumprod(0)[2],
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("function", COMPLEX.values(), ids=COMPLEX)
def test_bits_of_complex_numbers_do_not_depend_on_neighbours(function, dtype):
    generator = torch.Generator().manual_seed(4)
    x, y = (torch.randn(531, generator=generator, dtype=dtype) for _ in range(2))
    whole = function(x, y)
    for cut in (1, 2, 3, 5, 6, 7, 10, 18):
        assert same(whole[cut:], function(x[cut:].clone(), y[cut:].clone())), cut
        assert same(whole[:-cut], function(x[:-cut].clone(), y[:-cut].clone())), -cut
    for i in range(0, 525, 5):
        assert same(whole[i : i + 5], function(x[i : i + 5].clone(), y[i : i + 5].clone())), i
    apart = [torch.stack([each, each], 1)[:, 1] for each in (x, y)]
    assert same(whole, function(*apart))
