"""Factories: out=, bounds that tensors hold, messages."""

import mica as torch
import pytest

T = torch.tensor

FACTORIES = {
    "zeros": (lambda **o: torch.zeros(2, 3, **o), (2, 3)),
    "ones": (lambda **o: torch.ones((2, 3), **o), (2, 3)),
    "full": (lambda **o: torch.full((4,), 2.5, **o), (4,)),
    "empty": (lambda **o: torch.empty(2, 3, **o), (2, 3)),
    "arange": (lambda **o: torch.arange(1, 4, 0.5, **o), (6,)),
    "range": (lambda **o: torch.range(1, 4, **o), (4,)),
    "eye": (lambda **o: torch.eye(2, 3, **o), (2, 3)),
    "linspace": (lambda **o: torch.linspace(0, 1, 5, **o), (5,)),
    "logspace": (lambda **o: torch.logspace(0, 1, 5, **o), (5,)),
    "rand": (lambda **o: torch.rand(3, **o), (3,)),
    "randn": (lambda **o: torch.randn(3, **o), (3,)),
    "randint": (lambda **o: torch.randint(2, 9, (3,), **o), (3,)),
    "randperm": (lambda **o: torch.randperm(5, **o), (5,)),
    "normal": (lambda **o: torch.normal(1.0, 2.0, (3,), **o), (3,)),
}


@pytest.mark.filterwarnings("ignore:torch.range", "ignore:The number of elements in the out tensor")
@pytest.mark.parametrize("name", FACTORIES)
def test_out(name):
    make, shape = FACTORIES[name]
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(1)
        expected = make(dtype=dtype)
        for out in (
            torch.empty(0, dtype=dtype),
            torch.full((7,), 3.0, dtype=dtype),
            torch.empty(shape[::-1], dtype=dtype).t(),
        ):
            torch.manual_seed(1)
            assert make(out=out) is out and out.shape == shape
            assert name == "empty" or torch.equal(out, expected)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda out: torch.arange(4, out=out), [0, 1, 2, 3]),
        (lambda out: torch.range(1, 4, out=out), [1, 2, 3, 4]),
        (lambda out: torch.linspace(0, 6, 4, out=out), [0, 2, 4, 6]),
        (lambda out: torch.logspace(0, 3, 4, base=2, out=out), [1, 2, 4, 8]),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_sequences_fill_a_view_of_their_length(make, values):
    x = torch.zeros(2, 3)
    make(x[:, 1:])
    assert x.tolist() == [[0, *values[:2]], [0, *values[2:]]]


@pytest.mark.parametrize("device", ["cpu:0", "cpu:1", torch.device("cpu", 0)])
def test_the_host_is_one_device_by_any_number(device):
    x = torch.ones(2)
    made = (
        torch.ones(2, device=device), torch.tensor([1.0, 1.0], device=device), torch.rand(2, device=device),
        torch.zeros_like(x, device=device), x.to(device), torch.as_tensor(x, device=device), x.new_ones(2, device=device),
    )  # fmt: skip
    for y in made:
        assert y.device == torch.device("cpu")
        assert (x + y).shape == (2,)
    with torch.device(device):
        assert torch.ones(2).device == torch.device("cpu")
    assert torch.device("cpu:0").index == 0 and torch.device("cpu:0") != torch.device("cpu")
    assert torch.ones(2, device="meta:0").device == torch.device("meta")


def test_options_must_be_those_of_out():
    with pytest.raises(RuntimeError, match=r"dtype Double does not match dtype of out parameter \(Float\)"):
        torch.zeros(2, out=torch.ones(2), dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"device type meta does not match device type of out parameter \(cpu\)"):
        torch.zeros(2, out=torch.ones(2), device="meta")
    with pytest.raises(RuntimeError, match="functions with out=... arguments don't support automatic differentiation"):
        torch.zeros(2, out=torch.ones(2, requires_grad=True))
    assert torch.zeros(2, out=torch.ones(2), dtype=torch.float32, requires_grad=True).requires_grad
    assert torch.full((2,), 1.5, out=torch.empty(0, dtype=torch.int64)).tolist() == [1, 1]


def test_bounds_that_tensors_hold():
    for start, end in ((T(0.0), T(1.0)), (T(0.0), 1), (0, T(1.0)), (T(0), T(1))):
        assert torch.linspace(start, end, 3).tolist() == [0.0, 0.5, 1.0]
        assert torch.logspace(start, end, 2, base=2).tolist() == [1.0, 2.0]
    assert torch.linspace(T(0), T(4), 5, dtype=torch.int64).tolist() == [0, 1, 2, 3, 4]
    assert not torch.linspace(T(0.0, requires_grad=True), 1, 3).requires_grad
    assert torch.linspace(T(0.0), 1, 3, out=torch.empty(0)).tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(
        RuntimeError, match=r"linspace only supports 0-dimensional start and end tensors, but got start with 1"
    ):
        torch.linspace(T([0.0]), T(1.0), 3)


def test_strides_are_kept_by_factories_in_the_form_of_another():
    x = torch.ones(2, 3, 4).permute(2, 0, 1)
    for y in (torch.empty_like(x), torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 2), torch.rand_like(x)):
        assert y.stride() == x.stride()
    assert torch.empty_like(x, memory_format=torch.contiguous_format).stride() == (6, 3, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: torch.arange(1, 4, 0), "step must be nonzero"),
        (lambda: torch.arange(4, 1), "upper bound and lower bound inconsistent with step sign"),
        (lambda: torch.arange(float("inf")), "unsupported range: 0"),
        (lambda: torch.linspace(0, 1, -1), "number of steps must be non-negative"),
        (lambda: torch.eye(-1), "n must be greater or equal to 0, got -1"),
        (lambda: torch.zeros(-1), "Trying to create tensor with negative dimension -1"),
        (lambda: torch.empty(2**62), "Storage size calculation overflowed"),
        (lambda: torch.normal(0.0, T([1.0, -1.0])), "normal expects all elements of std >= 0.0"),
        (lambda: torch.normal(T([0.0]), T([torch.nan])), "normal expects all elements of std >= 0.0"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(RuntimeError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        # Bounds and step of int64 lose their fractions first; other integers count the steps as they are given.
        (lambda: torch.arange(0.0, -8.000001, -4.0, dtype=torch.int64), [0, -4]),
        (lambda: torch.arange(0.0, 5.0, 1.5, dtype=torch.int64), [0, 1, 2, 3, 4]),
        (lambda: torch.arange(0, 5, 2.5, out=torch.empty(0, dtype=torch.int64)), [0, 2, 4]),
        (lambda: torch.arange(0.5, 3.2, 0.9, dtype=torch.int32), [0, 0, 0]),
        (lambda: torch.linspace(1.7, 9.9, 4, dtype=torch.int64), [1, 3, 6, 9]),
        (lambda: torch.linspace(4.3, 0, 5, dtype=torch.uint8), [4, 3, 2, 1, 0]),
        (lambda: torch.logspace(0, 3.7, 5, dtype=torch.int64), [1, 5, 31, 177, 1000]),
        (lambda: torch.logspace(0, 3.7, 5, dtype=torch.int32), [1, 5, 31, 177, 1000]),
        (lambda: torch.logspace(4.3, 0, 1, dtype=torch.int64), [19952]),
        (lambda: torch.logspace(4.3, -3, 2, dtype=torch.bfloat16), [20480.0, 0.00099945068359375]),
    ],
)
def test_sequences_of_integers_begin_with_integers(call, expected):
    assert call().tolist() == expected


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: torch.arange(0, 5, 0.5, dtype=torch.int64), ValueError, "step must be nonzero"),
        (lambda: torch.linspace(0, 300, 5, dtype=torch.uint8), RuntimeError, "type uint8_t without overflow"),
        (lambda: torch.logspace(0, 300, 5, dtype=torch.uint8), RuntimeError, "type uint8_t without overflow"),
        (lambda: torch.logspace(0, 5, 5, dtype=torch.bool), NotImplementedError, "not implemented for 'Bool'"),
        (lambda: torch.linspace(0, 5j, 3, dtype=torch.float32), RuntimeError, "can't be safely cast to passed dtype"),
        (lambda: torch.full((2,), 300, dtype=torch.uint8), RuntimeError, "type uint8_t without overflow"),
        (lambda: torch.full((2,), float("nan"), dtype=torch.int32), RuntimeError, "type int without overflow"),
        (lambda: torch.full((2,), 1e39, dtype=torch.float32), RuntimeError, "type float without overflow"),
        (lambda: torch.full_like(torch.zeros(2), 1j), RuntimeError, "type float without overflow"),
        (lambda: torch.zeros(2, dtype=torch.int8).fill_(200), RuntimeError, "type int8_t without overflow"),
        (lambda: torch.empty_permuted((2,), (3,)), RuntimeError, "Dimension out of range"),
        (lambda: torch.empty_permuted((2, 3), (0, -1)), RuntimeError, "Dimension out of range"),
        (lambda: torch.empty_permuted((2, 3), (0, 0)), RuntimeError, "Duplicate dim not allowed"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_numbers_that_wrap_where_torch_wraps_them():
    assert torch.full((1,), -1, dtype=torch.uint8).item() == 255
    assert torch.zeros(1, dtype=torch.int8).fill_(torch.tensor(200)).item() == -56
    assert torch.full((1,), float("inf"), dtype=torch.float16).item() == float("inf")


@pytest.mark.parametrize("dtype", ("uint8", "int16", "float32", "float64", "complex128"))
def test_large_fills_write_what_they_fill_and_nothing_else(dtype):
    x = torch.zeros(3_000_017, dtype=getattr(torch, dtype))
    x[1:-3].fill_(5)
    assert x[0] == 0 and (x[-3:] == 0).all() and (x[1:-3] == 5).all()
    rows = torch.zeros(1500, 2001, dtype=x.dtype)
    rows[:, :-1].fill_(5)
    assert (rows[:, -1] == 0).all() and (rows[:, :-1] == 5).all()
