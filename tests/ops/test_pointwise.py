"""Pointwise operations beyond their samples: edge values, promotion of what is written to, messages. Values are torch's."""

import math

import mica as torch
import numpy as np
import pytest

inf, nan = math.inf, math.nan
T = torch.tensor


def same(t, expected, dtype=None):
    """Equal numbers, NaN to NaN and the sign of zero included."""
    got, want = np.array(t.tolist()), np.array(expected)
    np.testing.assert_array_equal(got, want)
    if got.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(want[~np.isnan(want)]))
    assert dtype is None or t.dtype == dtype


# ---- division, remainders, powers


def test_integer_division_rounds_as_asked():
    a, b = T([7, -7]), T([-2, 2])
    same(a // b, [-4, -4])
    same(a % b, [-1, 1])
    same(torch.fmod(a, b), [1, -1])
    same(torch.div(a, 2, rounding_mode="trunc"), [3, -3])
    same(torch.div(a, 2, rounding_mode="floor"), [3, -4])
    same(a / 2, [3.5, -3.5], torch.float32)
    for f in (torch.floor_divide, torch.remainder, torch.fmod):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            f(T([1]), T([0]))
    with pytest.raises(RuntimeError, match="div expected rounding_mode to be one of None, 'trunc', or 'floor' but"):
        torch.div(a, 2, rounding_mode="up")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_lowest_integer_divided_by_minus_one_does_not_trap(dtype):
    dtype = getattr(torch, dtype)
    lowest = T([torch.iinfo(dtype).min], dtype=dtype)
    minus_one = T([-1], dtype=dtype)
    same(torch.remainder(lowest, minus_one), [0])
    same(torch.fmod(lowest, minus_one), [0])
    assert (lowest // minus_one).dtype == dtype


def test_floor_division_of_floats():
    same(T([7.0, -7.0, inf, 0.0, -0.0]) // T([0.0, 0.0, 2.0, 0.0, 3.0]), [inf, -inf, nan, nan, -0.0])


def test_powers():
    same(T([0.0, 2.0, -2.0, inf]) ** T([0.0, -1.0, 0.5, 0.0]), [1.0, 0.5, nan, 1.0])
    same(T([1, -1, 2]) ** T([-1, -1, -1]), [1, -1, 0], torch.int64)
    same(2 ** T([0, 3]), [1, 8], torch.int64)
    same(torch.float_power(T([2]), 3), [8.0], torch.float64)
    for f in (lambda: T([2, 3]) ** -1, lambda: torch.pow(T([2]), -1)):
        with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed."):
            f()


# ---- dtypes of results and of what is written to


def test_integers_wrap_around():
    same(T([200], dtype=torch.uint8) + 100, [44], torch.uint8)
    same(T([1], dtype=torch.uint8) - 2, [255], torch.uint8)
    same(T([1], dtype=torch.int8) + 200, [-55], torch.int8)
    same(T([1], dtype=torch.int32) * 2**40, [0], torch.int32)
    same(T([1.0], dtype=torch.float16) * 70000, [inf], torch.float16)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: T([1, 2]).add_(1.5), "result type Float can't be cast to the desired output type Long"),
        (lambda: T([1, 2]).div_(2), "result type Float can't be cast to the desired output type Long"),
        (lambda: torch.sqrt_(T([4])), "result type Float can't be cast to the desired output type Long"),
        (lambda: T([1.0]).add_(1j), "result type ComplexFloat can't be cast to the desired output type Float"),
        (lambda: T([True]).add_(1), "result type Long can't be cast to the desired output type Bool"),
        (
            lambda: torch.add(torch.ones(2), torch.ones(2), out=torch.empty(2, dtype=torch.int64)),
            "result type Float can't be cast to the desired output type Long",
        ),
        (lambda: torch.ones(2).add_(torch.ones(3, 2)), r"output with shape \[2\] doesn't match the broadcast shape"),
        (lambda: torch.ones(2) + torch.ones(3), r"The size of tensor a \(2\) must match the size of tensor b \(3\)"),
        (
            lambda: torch.add(T([1]), T([1]), alpha=1.5),
            "For integral input tensors, argument alpha must not be a float",
        ),
        (lambda: torch.add(T([1]), T([1]), alpha=True), "Boolean alpha only supported for Boolean results."),
        (lambda: T([True]) - T([True]), "Subtraction, the `-` operator, with two bool tensors is not supported"),
        (lambda: -T([True]), "Negation, the `-` operator, on a bool tensor is not supported"),
        (lambda: torch.maximum(T([1j]), T([1j])), "maximum not implemented for complex tensors."),
        (lambda: torch.clamp(T([1.0])), "torch.clamp: At least one of 'min' or 'max' must not be None"),
        (lambda: torch.isclose(T([1.0]), T([1])), "Float did not match Long"),
        (lambda: torch.imag(T([1.0])), "imag is not implemented for tensors with non-complex dtypes."),
    ],
)
def test_refusals(call, words):
    with pytest.raises(RuntimeError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ~T([1.5]), TypeError, "only implemented on integer and Boolean-type tensors"),
        (lambda: T([1.5]) & T([1]), NotImplementedError, "\"bitwise_and_cpu\" not implemented for 'Float'"),
        (lambda: T([1.0]) << T([1]), NotImplementedError, "\"lshift_cpu\" not implemented for 'Float'"),
        (lambda: T([1j]) < T([1j]), NotImplementedError, "\"lt_cpu\" not implemented for 'ComplexFloat'"),
        (lambda: torch.ceil(T([True])), NotImplementedError, "not implemented for 'Bool'"),
        (lambda: torch.eq(T([1]), "a"), TypeError, r"eq\(\) received an invalid combination of arguments - got"),
    ],
)
def test_refused_dtypes(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("name", ["add_", "div_", "sub_", "mul_", "pow_", "copysign_", "atan2_"])
def test_a_refused_in_place_call_changes_nothing(name):
    x = T([1, 2, 3])
    version = x._version
    with pytest.raises(RuntimeError, match="can't be cast"):
        getattr(x, name)(T([1.5, 2.5, 3.5]))
    same(x, [1, 2, 3], torch.int64)
    assert x._version == version


def test_out_is_given_the_shape_and_may_be_an_input():
    x = T([1.0, 2.0])
    assert torch.mul(x, 3, out=x) is x
    same(x, [3.0, 6.0])
    wide = torch.empty(0, dtype=torch.float64)
    same(torch.add(x, 1, out=wide), [4.0, 7.0], torch.float64)
    y = torch.arange(6.0)
    with pytest.raises(
        RuntimeError, match="unsupported operation: some elements of the input tensor and the written-to"
    ):
        torch.add(y[:5], 1, out=y[1:])
    with pytest.raises(RuntimeError, match="unsupported operation: more than one element of the written-to tensor"):
        torch.ones(1).expand(3).add_(1)
    same(y, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])


# ---- functions of one operand


def test_rounding():
    same(torch.round(T([0.5, 1.5, 2.5, -0.5, -1.5])), [0.0, 2.0, 2.0, -0.0, -2.0])
    np.testing.assert_allclose(torch.round(T([1.25, 1.35]), decimals=1).tolist(), [1.2, 1.4], rtol=1e-7)
    same(torch.round(T([1234.0]), decimals=-2), [1200.0])
    same(torch.trunc(T([-1.5, 1.5])), [-1.0, 1.0])
    same(torch.frac(T([-1.5, 1.5])), [-0.5, 0.5])
    same(torch.floor(T([1, 2])), [1, 2], torch.int64)


def test_infinities_zeros_and_nan():
    same(torch.sqrt(T([-1.0, 4.0, nan])), [nan, 2.0, nan])
    same(torch.rsqrt(T([0.0, -0.0, 4.0])), [inf, -inf, 0.5])
    same(torch.reciprocal(T([0, 2])), [inf, 0.5], torch.float32)
    same(torch.log1p(T([-1.0, -2.0, 0.0])), [-inf, nan, 0.0])
    same(torch.logit(T([0.0, 1.0, 0.5, 2.0])), [-inf, inf, 0.0, nan])
    same(torch.erfinv(T([1.0, -1.0, 2.0, 0.0])), [inf, -inf, nan, 0.0])
    same(torch.exp2(T([-1074.0, 1024.0], dtype=torch.float64)), [5e-324, inf])
    same(torch.digamma(T([0.0, -1.0])), [-inf, nan])
    same(torch.lgamma(T([0.0, -1.0, 1.0])), [inf, inf, 0.0])
    same(torch.sign(T([-2.0, 0.0, nan])), [-1.0, 0.0, 0.0])
    same(torch.signbit(T([-0.0, 0.0, -1.0])), [True, False, True])
    same(torch.nan_to_num(T([nan, inf, -inf]), nan=1.0, posinf=2.0), [1.0, 2.0, float(np.finfo("f4").min)])
    np.testing.assert_allclose(torch.angle(T([-1.0, 1.0, nan])).tolist(), [math.pi, 0.0, nan], rtol=1e-7)
    np.testing.assert_allclose(torch.sgn(T([3 + 4j, 0])).tolist(), [0.6 + 0.8j, 0], rtol=1e-7)
    mantissa, exponent = torch.frexp(T([8.0, 0.0, -0.75]))
    same(mantissa, [0.5, 0.0, -0.75])
    same(exponent, [4, 0, 0], torch.int32)


@pytest.mark.parametrize("name", ["exp", "sin", "tanh", "erf", "log", "sigmoid"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64"])
def test_integers_become_the_default_float(name, dtype):
    x = T([0, 1], dtype=getattr(torch, dtype))
    y = getattr(torch, name)(x)
    assert y.dtype == torch.float32
    same(y, getattr(torch, name)(x.float()).tolist())


# ---- functions of two operands


def test_the_larger_and_the_smaller():
    a, b = T([1.0, nan, nan]), T([nan, 1.0, nan])
    same(torch.maximum(a, b), [nan, nan, nan])
    same(torch.minimum(a, b), [nan, nan, nan])
    same(torch.fmax(a, b), [1.0, 1.0, nan])
    same(torch.fmin(a, b), [1.0, 1.0, nan])
    same(torch.clamp(T([1.0, nan, 5.0]), 2.0, 3.0), [2.0, nan, 3.0])
    same(torch.clamp(T([1.0, 2.0, 3.0]), 3.0, 1.0), [1.0, 1.0, 1.0])
    same(torch.clamp(T([1, 2, 3]), min=1.5), [1.5, 2.0, 3.0], torch.float32)
    same(T([1, 2, 3]).clamp(T([2, 0, 9]), T([5, 1, 8])), [2, 1, 8])


def test_functions_of_two_numbers():
    np.testing.assert_allclose(
        torch.atan2(T([0.0, -0.0, 1.0]), T([-1.0, -1.0, 0.0])).tolist(), [math.pi, -math.pi, math.pi / 2], rtol=1e-7
    )
    np.testing.assert_allclose(
        torch.logaddexp(T([-inf, 0.0, inf]), T([-inf, 0.0, inf])).tolist(), [-inf, math.log(2), inf], rtol=1e-7
    )
    same(torch.xlogy(T([0.0, 0.0, 1.0]), T([0.0, nan, 0.0])), [0.0, nan, -inf])
    same(torch.nextafter(T([0.0, 1.0]), T([1.0, 0.0])), [2.0**-149, 1 - 2.0**-24])
    same(torch.heaviside(T([-1.0, 0.0, 2.0]), T([0.5, 0.5, 0.5])), [0.0, 0.5, 1.0])
    same(torch.copysign(T([1.0, 2.0]), T([-0.0, 3.0])), [-1.0, 2.0])
    same(torch.hypot(T([3.0, inf]), T([4.0, nan])), [5.0, inf])
    same(torch.ldexp(T([1.0]), T([3])), [8.0])
    same(torch.ldexp(T([2.0**-100, 2.0]), T([200, -150])), [2.0**100, 2.0**-149])
    same(torch.ldexp(T([3.0], dtype=torch.float64), T([1000])), [3 * 2.0**1000])
    same(torch.gcd(T([12, -18, 0]), T([18, 12, 0])), [6, 6, 0])
    same(torch.lcm(T([4, 0]), T([6, 5])), [12, 0])


def test_shifts_beyond_the_width():
    same(T([1, 2]) << T([65, 1]), [0, 4])
    same(T([-8]) >> T([70]), [-1])
    same(T([8], dtype=torch.uint8) >> T([9], dtype=torch.uint8), [0])


def test_logic_and_comparison():
    same(torch.logical_and(T([1.5, 0.0, nan]), T([True, True, True])), [True, False, True])
    same(torch.bitwise_not(T([True, False])), [False, True])
    same(torch.isclose(T([1.0, inf, nan]), T([1 + 1e-9, inf, nan])), [True, True, False])
    same(torch.isclose(T([nan]), T([nan]), equal_nan=True), [True])
    same(T([nan]) == T([nan]), [False])
    same(T([2**53 + 1]) == T([2**53]), [False])
    assert (T([1]) == None) is False  # noqa: E711
    assert torch.equal(T([1, 2]), T([1, 2])) and not torch.equal(T([1, 2]), T([[1, 2]]))


def test_where():
    same(torch.where(T([True, False]), 1, 2.5), [1.0, 2.5], torch.float32)
    same(torch.where(T([[True], [False]]), T([1, 2]), T(5.0)), [[1.0, 2.0], [5.0, 5.0]], torch.float32)
    for dtype, name in ((torch.int64, "Long"), (torch.float32, "Float")):
        with pytest.raises(RuntimeError, match=f"where expected condition to be a boolean tensor, but.*{name}"):
            torch.where(T([1, 0], dtype=dtype), 1, 2)


# ---- layouts


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64", "bfloat16"])
def test_every_layout_gives_the_same(dtype):
    base = torch.arange(-60, 60).view(2, 3, 4, 5).to(getattr(torch, dtype))
    for x in (base, base.permute(3, 1, 0, 2), base[:, ::2, 1:], base[:, :1].expand(2, 3, 4, 5), base.flip(1)[..., ::3]):
        dense = x.contiguous()
        for y in (T(3), torch.arange(x.shape[-1]), dense.to(torch.float64) if not x.is_complex() else dense):
            assert torch.equal(x * y, dense * y)
            assert torch.equal(y - x, y - dense)
        assert torch.equal(x.neg(), dense.neg())
        assert torch.equal(x == dense, torch.ones_like(dense, dtype=torch.bool))


def test_a_result_has_the_order_of_its_operands():
    x = torch.ones(2, 3, 4).permute(2, 0, 1)
    assert (x + 1).stride() == x.stride()
    assert (x + torch.ones(4, 2, 3)).stride() == x.stride()
    assert (torch.ones(4, 2, 3) + x).stride() == (6, 3, 1)
    # A dimension without a stride of its own does not decide the order.
    expanded = torch.ones(1, 5).expand(3, 5)
    for y in (-expanded, expanded.clone(), torch.empty_like(expanded), expanded.to(torch.float64)):
        assert y.stride() == (5, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_floats_and_numbers(dtype):
    """Products, quotients and lerp take the number itself; a scaled sum has its factor and its product in 16 bits."""
    number = 0.8772267236891091
    x = torch.linspace(0.5, 3, 37).to(dtype)
    wide = x.float()

    def rounded(t):
        return t.to(dtype).float()

    assert torch.equal(x * number, (wide * number).to(dtype)) and torch.equal(number * x, (wide * number).to(dtype))
    assert torch.equal(x / number, (wide / number).to(dtype))
    assert torch.equal(number / x, (rounded(1 / wide) * number).to(dtype))  # the reciprocal times the number
    assert torch.equal(x.clone().div_(number), (wide / number).to(dtype))
    assert torch.equal(torch.lerp(x, x * 2, number), torch.lerp(wide, wide * 2, number).to(dtype))
    product = rounded(wide * rounded(torch.tensor(number)))
    assert torch.equal(torch.add(x, x, alpha=number), (wide + product).to(dtype))
    assert torch.equal(torch.sub(x, x, alpha=number), (wide - product).to(dtype))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: torch.zeros(2, dtype=torch.uint8).clamp(0, 300), "uint8_t"),
        (lambda: torch.zeros(2, dtype=torch.uint8).clamp_(0, 300), "uint8_t"),
        (lambda: torch.zeros(2, dtype=torch.uint8).clamp_max(300), "uint8_t"),
        (lambda: torch.zeros(2, dtype=torch.float16).clamp(min=1e6), "c10::Half"),
        (lambda: torch.where(T(True), torch.zeros(2, dtype=torch.uint8), 300), "uint8_t"),
        (lambda: torch.zeros(2).masked_fill(T(False), T(1j)), "float"),
        (lambda: torch.zeros(2, dtype=torch.uint8).masked_fill(T(False), T(300)), "uint8_t"),
    ],
)
def test_numbers_that_a_dtype_does_not_hold(call, words):
    with pytest.raises(RuntimeError, match=f"value cannot be converted to type {words} without overflow"):
        call()


def test_division_has_its_old_names():
    assert T(3.0).__div__(2).item() == 1.5 and T(2.0).__rdiv__(3).item() == 1.5 and T(3.0).__idiv__(2).item() == 1.5


def test_bounds_that_widen_the_result_fit():
    same(torch.full((2,), 7, dtype=torch.uint8).clamp_max(300.0), [7.0, 7.0], torch.float32)
    same(torch.full((2,), 7, dtype=torch.uint8).clamp(-1, 200), [200, 200], torch.uint8)  # -1 is 255


def test_gradients_that_are_zero_or_all():
    x, y = T([1.0, 2.0], requires_grad=True), T([2.0, 1.0], requires_grad=True)
    torch.nextafter(x, y).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0] and y.grad.tolist() == [0.0, 0.0]
    for draw in (torch.bernoulli, torch.poisson, lambda p: torch.normal(p, 1.0), lambda p: torch.normal(0.0, p)):
        p = T([0.25, 0.5], requires_grad=True)
        draw(p).sum().backward()
        assert p.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
)
def test_equality_of_the_shortest_floats(dtype):
    x, y = T([1.0, -2.0, nan]).to(dtype), T([1.0, 2.0, nan]).to(dtype)
    assert (x == y).tolist() == [True, False, False] and (x != y).tolist() == [False, True, True]
    assert torch.equal(x[:2], x[:2].clone()) and not torch.equal(x, x.clone())


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("__rpow__", 1, [2.0, 4.0]),
        ("__rsub__", 1, [1.0, 3.0]),
        ("__rtruediv__", 2, [1.0, 2.0]),
        ("__rdiv__", 2, [1.0, 2.0]),
        ("__rfloordiv__", 3, [0.0, 1.0]),
        ("__rmod__", 3, [2.0, 1.0]),
    ],
)
def test_reflected_operators_are_functions(name, number, expected):
    x = torch.tensor([2.0, 4.0])
    assert getattr(torch.Tensor, name)(number, x).tolist() == expected  # x op number, as torch has it
    assert getattr(x, name)(number).tolist() == getattr(torch.Tensor, name)(x, number).tolist()
    assert getattr(x, name)("text") is NotImplemented


def test_operators_keep_their_slots():
    x = torch.tensor([2.0, 4.0])
    assert (1 - x).tolist() == [-1, -3] and (2**x).tolist() == [4, 16] and (8 / x).tolist() == [4, 2]
    with pytest.raises(TypeError):
        "text" - x


def test_powers_of_zero_and_one():
    flags = torch.tensor([True, False])
    assert (flags**True).tolist() == [True, False] and (flags**False).tolist() == [True, True]
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        flags**flags
    z = torch.tensor([complex(math.inf, -2)])
    assert (z**1).tolist() == z.tolist() and (z**0).tolist() == [1]


def test_exponents_fit_the_dtype():
    with pytest.raises(RuntimeError, match="value cannot be converted to type uint8_t without overflow"):
        torch.ones(2, dtype=torch.uint8) ** 300
    assert (torch.tensor([3], dtype=torch.uint8) ** 255).tolist() == [3**255 % 256]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats_compare_as_their_values(dtype):
    """Every number with others, and zeros, infinities, NaNs and the least and largest with one another."""
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
    limits = torch.tensor(
        [0, -0.0, math.inf, -math.inf, math.nan, 1, -1, torch.finfo(dtype).max, -torch.finfo(dtype).max]
    )
    limits = torch.cat([limits.to(dtype), torch.tensor([1, -32767], dtype=torch.int16).view(dtype)])
    across = limits.repeat_interleave(len(limits)), limits.repeat(len(limits))
    for a, b in (
        (every, every.flip(0)),
        (every, every.roll(12345)),
        (every[::3], every.roll(77)[::3]),
        (every, every),
        across,
    ):
        for name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"):
            f = getattr(torch, name)
            assert torch.equal(f(a, b), f(a.float(), b.float())), name
        for number in (0.0, 0.5, math.inf, math.nan):
            assert torch.equal(a < number, a.float() < number) and torch.equal(a != number, a.float() != number)
        for f in (torch.logical_not, torch.isnan, torch.isinf, torch.isfinite):
            assert torch.equal(f(a), f(a.float()))
