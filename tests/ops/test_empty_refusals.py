"""A pointwise operation refuses a dtype for tensors without elements too, in the same words as for one element."""

import mica as torch
import pytest

DTYPES = [torch.bool, torch.uint8, torch.int64, torch.uint16, torch.float16, torch.bfloat16, torch.float32]
DTYPES += [torch.float64, torch.complex32, torch.complex64, torch.float8_e4m3fn]
UNARY = [
    "abs",
    "acos",
    "angle",
    "asinh",
    "bitwise_not",
    "ceil",
    "cos",
    "digamma",
    "erf",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "i0",
    "isneginf",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "logical_not",
    "logit",
    "neg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sgn",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]
BINARY = [
    "add",
    "atan2",
    "bitwise_and",
    "bitwise_or",
    "bitwise_left_shift",
    "copysign",
    "div",
    "eq",
    "fmax",
    "floor_divide",
    "fmod",
    "gcd",
    "ge",
    "hypot",
    "igamma",
    "lcm",
    "ldexp",
    "logaddexp",
    "logical_and",
    "maximum",
    "mul",
    "nextafter",
    "pow",
    "remainder",
    "sub",
    "xlogy",
]


def outcome(function, *arguments):
    try:
        return function(*arguments).dtype
    except (RuntimeError, TypeError) as error:
        return type(error).__name__, str(error)


def one(dtype):
    return torch.tensor([[1, 1, 1]], dtype=torch.uint8).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_none_are_refused_as_one_is(dtype):
    full = one(dtype)
    empties = [full[:0], full.t()[:, :0], full[:0].expand(4, 0, 3)]
    refused = 0
    for arguments, names in ((1, UNARY), (2, BINARY)):
        for name in names:
            function = getattr(torch, name)
            wanted = outcome(function, *[full] * arguments)
            refused += isinstance(wanted, tuple)
            for empty in empties:
                assert outcome(function, *[empty] * arguments) == wanted, name
            assert outcome(function, empties[0], *[full] * (arguments - 1)) == wanted, name
    assert refused or dtype in (torch.float32, torch.float64)  # the test has met what it is about


# Recorded from torch 2.13.
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda e: torch.relu(e(torch.bool)), "Boolean inputs not supported for relu"),
        (lambda e: torch.ceil(e(torch.complex64)), "ceil is not supported for complex inputs"),
        (lambda e: torch.nn.functional.gelu(e(torch.int64)), "\"GeluKernelImpl\" not implemented for 'Long'"),
        (
            lambda e: torch.atan2(e(torch.complex64), e(torch.complex64)),
            "\"atan2_cpu\" not implemented for 'ComplexFloat'",
        ),
        (
            lambda e: torch.bitwise_and(e(torch.float32), e(torch.float32)),
            "\"bitwise_and_cpu\" not implemented for 'Float'",
        ),
        (lambda e: torch.gcd(e(torch.float32), e(torch.float32)), "\"gcd_cpu\" not implemented for 'Float'"),
        (lambda e: torch.logit(e(torch.complex64)), "\"logit_cpu\" not implemented for 'ComplexFloat'"),
        (lambda e: e(torch.float32).bitwise_not_(), "\"bitwise_not_cpu\" not implemented for 'Float'"),
        (
            lambda e: torch.lgamma(e(torch.complex64), out=e(torch.complex64)),
            "\"lgamma_vml_cpu\" not implemented for 'ComplexFloat'",
        ),
    ],
)
def test_the_words_are_torchs(call, words):
    with pytest.raises(RuntimeError) as error:
        call(lambda dtype: torch.zeros(0, 3, dtype=dtype))
    assert str(error.value) == words


def test_what_is_taken_stays_empty():
    nothing = torch.zeros(0, dtype=torch.int64)
    assert (nothing // 0).shape == (nothing % nothing).shape == (nothing**nothing).shape == (0,)
    assert torch.zeros(3, 0).pow_(2.0).shape == (3, 0)
    assert (torch.zeros(0, 3) + torch.ones(3)).shape == (0, 3)
    assert torch.zeros(2, 0, device="meta").bitwise_not().shape == (2, 0)  # meta has no kernels that could refuse
