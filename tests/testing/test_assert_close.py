"""assert_close and make_tensor."""

import math
import re

import mica as torch
import numpy as np
import pytest
from mica.testing import assert_close, make_tensor

T = torch.tensor

FAILURES = [  # recorded from torch
    (
        (T([1.0, 2.0, 3.0]), T([1.0, 2.5, 3.0])),
        "Tensor-likes are not close!\n\nMismatched elements: 1 / 3 (33.3%)\n"
        "Greatest absolute difference: 0.5 at index (1,) (up to 1e-05 allowed)\n"
        "Greatest relative difference: 0.20000000298023224 at index (1,) (up to 1.3e-06 allowed)",
    ),
    (
        (T([1, 2]), T([1, 3])),
        "Tensor-likes are not equal!\n\nMismatched elements: 1 / 2 (50.0%)\n"
        "Greatest absolute difference: 1 at index (1,)\n"
        "Greatest relative difference: 0.3333333432674408 at index (1,)",
    ),
    (
        (T(1.0), T(2.0)),
        "Scalars are not close!\n\nExpected 2.0 but got 1.0.\nAbsolute difference: 1.0 (up to 1e-05 allowed)\n"
        "Relative difference: 0.5 (up to 1.3e-06 allowed)",
    ),
    (
        (1.0, 2.0),
        "Scalars are not close!\n\nExpected 2.0 but got 1.0.\nAbsolute difference: 1.0 (up to 1e-07 allowed)\n"
        "Relative difference: 0.5 (up to 1e-07 allowed)",
    ),
    ((1, 2), "Scalars are not equal!\n\nExpected 2 but got 1.\nAbsolute difference: 1\nRelative difference: 0.5"),
    ((True, False), "Booleans mismatch: True is not False"),
    ((None, 1), "None mismatch: None is not 1"),
    (
        (T([1.0]), T([1.0, 2.0])),
        "The values for attribute 'shape' do not match: torch.Size([1]) != torch.Size([2]).",
    ),
    (
        (T([1.0]), T([1.0], dtype=torch.float64)),
        "The values for attribute 'dtype' do not match: torch.float32 != torch.float64.",
    ),
    (([1], [1, 2]), "The length of the sequences mismatch: 1 != 2"),
    (
        ({"a": T([1.0])}, {"b": T([1.0])}),
        "The keys of the mappings do not match:\nMissing keys in the actual mapping: ['b']\n"
        "Additional keys in the actual mapping: ['a']",
    ),
    (
        ({"a": [T(1.0)]}, {"a": [T(2.0)]}),
        "Scalars are not close!\n\nExpected 2.0 but got 1.0.\nAbsolute difference: 1.0 (up to 1e-05 allowed)\n"
        "Relative difference: 0.5 (up to 1.3e-06 allowed)\n\nThe failure occurred for item ['a'][0]",
    ),
    (
        (T([math.nan]), T([math.nan])),
        "Tensor-likes are not close!\n\nMismatched elements: 1 / 1 (100.0%)\n"
        "Greatest absolute difference: nan at index (0,) (up to 1e-05 allowed)\n"
        "Greatest relative difference: nan at index (0,) (up to 1.3e-06 allowed)",
    ),
    (
        (np.ones(2), np.zeros(2)),
        "Tensor-likes are not close!\n\nMismatched elements: 2 / 2 (100.0%)\n"
        "Greatest absolute difference: 1.0 at index (0,) (up to 1e-07 allowed)\n"
        "Greatest relative difference: inf at index (0,) (up to 1e-07 allowed)",
    ),
]


@pytest.mark.parametrize(("values", "message"), FAILURES)
def test_failures_say_what_torch_says(values, message):
    with pytest.raises(AssertionError) as caught:
        assert_close(*values)
    assert str(caught.value) == message


def test_what_is_close():
    assert_close(T([1.0, 2.0]), T([1.0, 2.0 + 1e-6]))
    assert_close(T([1.0]), T([1.1]), rtol=0.2, atol=0)
    assert_close(T([math.nan, math.inf]), T([math.nan, math.inf]), equal_nan=True)
    assert_close([1.0, 2.0], (1.0, 2.0))
    assert_close(T([1.0]).half(), T([1.0]).half() * 1.0005)
    assert_close(T([1.0]), T([1]), check_dtype=False)
    assert_close(torch.empty(0), torch.empty(0))
    assert_close(torch.ones(2, 3), torch.ones(3, 2).t())
    with pytest.raises(AssertionError, match=re.escape("'stride()' do not match: (3, 1) != (1, 2)")):
        assert_close(torch.ones(2, 3), torch.ones(3, 2).t(), check_stride=True)


def test_messages_can_be_replaced():
    with pytest.raises(AssertionError, match="^mine$"):
        assert_close(T([1.0]), T([2.0]), msg="mine")
    with pytest.raises(AssertionError, match="^mine: Tensor-likes"):
        assert_close(T([1.0]), T([2.0]), msg=lambda text: "mine: " + text)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="got no atol"):
        assert_close(T([1.0]), T([2.0]), rtol=1e-3)
    with pytest.raises(TypeError, match="No comparison pair was able to handle inputs of type <class 'str'>"):
        assert_close("a", "b")


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int8, torch.int64, torch.float16, torch.float64, torch.complex64]
)
def test_make_tensor(dtype):
    x = make_tensor(4, 5, dtype=dtype, device="cpu")
    assert x.shape == (4, 5)
    assert x.dtype == dtype
    assert not x._is_view()
    assert not make_tensor((4, 5), dtype=dtype, noncontiguous=True).is_contiguous()
    if dtype is not torch.bool:
        bounded = make_tensor(100, dtype=dtype, low=2, high=4)
        real = torch.view_as_real(bounded) if dtype.is_complex else bounded
        assert real.min() >= 2
        assert real.max() <= 4
        assert (make_tensor(200, dtype=dtype, low=0, high=2, exclude_zero=True) != 0).all()
    if dtype.is_floating_point:
        assert make_tensor(2, dtype=dtype, requires_grad=True).requires_grad


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_sparse_tensors(layout):
    def sparse(rows):
        dense = torch.tensor(rows, dtype=torch.float32)
        blocks = ((1, 1),) if layout.startswith("b") else ()
        return getattr(dense, f"to_sparse_{layout}")(*blocks)

    name = layout.upper()
    some = sparse([[1.0, 0], [0, 2]])
    assert_close(some, sparse([[1.0, 0], [0, 2]]))
    assert_close(some, torch.tensor([[1.0, 0], [0, 2]]), check_layout=False)
    with pytest.raises(AssertionError, match=f"Sparse {name} values are not close!\n\nMismatched elements: 1 / 2"):
        assert_close(some, sparse([[1.0, 0], [0, 2.5]]))
    with pytest.raises(AssertionError, match=f"specified values in sparse {name} tensors does not match: 2 != 4"):
        assert_close(some, sparse([[1.0, 1], [1, 2]]))
    with pytest.raises(AssertionError, match=f"Sparse {name} .*indices are not equal!"):
        assert_close(some, sparse([[0, 1.0], [0, 2]]))


def test_quantized_tensors():
    a, b = (torch.quantize_per_tensor(torch.tensor([0.0, x]), 0.5, 0, torch.quint8) for x in (1.0, 2.0))
    assert_close(a, a.clone())
    with pytest.raises(AssertionError, match="Tensor-likes are not close!"):
        assert_close(a, b)


def test_make_tensor_at_its_bounds():
    nan = float("nan")
    for low, high in ((None, nan), (nan, None), (nan, nan)):
        with pytest.raises(ValueError, match="`low` and `high` cannot be NaN"):
            make_tensor(3, dtype=torch.float32, low=low, high=high)
    for dtype in (torch.float16, torch.float32, torch.complex64):
        with pytest.warns(FutureWarning, match="Passing `low==high`"):
            made = make_tensor(3, dtype=dtype, low=1, high=1)
        assert (made == (1 + 1j if dtype.is_complex else 1)).all()
    with pytest.raises(ValueError, match="`low` must be less than `high`"):
        make_tensor(3, dtype=torch.int32, low=1, high=1)
    for dtype in (torch.int8, torch.uint8, torch.int32):
        top = torch.iinfo(dtype).max
        assert (make_tensor(9, dtype=dtype, low=top, high=top + 1) == top).all()
    for dtype in (torch.float16, torch.bfloat16):
        made = make_tensor(10_000, dtype=dtype, low=0, high=2)
        assert ((made >= 0) & (made < 2)).all()
    with pytest.raises(ValueError, match="is not supported for boolean and integral dtypes"):
        make_tensor(3, dtype=torch.int8, requires_grad=True)


@pytest.mark.filterwarnings("ignore:.*assert_allclose.*:FutureWarning")
def test_the_older_form():
    # What torch 2.13 says.
    older = torch.testing.assert_allclose
    older([1.0], torch.ones(1))
    older(np.ones(2), torch.ones(2))
    older(torch.ones(1, dtype=torch.float64), torch.ones(1))
    older(T([math.nan]), T([math.nan]))
    older(torch.ones(1) * 1.01, torch.ones(1), rtol=0.1, atol=0)
    close, equal = "Tensor-likes are not close!", "Tensor-likes are not equal!"
    for dtype, words, absolute in [
        (torch.float16, close, "up to 0.001 allowed"),
        (torch.float32, close, "up to 1e-05 allowed"),
        (torch.float64, close, "up to 1e-08 allowed"),
        (torch.bfloat16, equal, "Greatest absolute difference: 1.0"),
        (torch.int32, equal, "Greatest absolute difference: 1 at"),
        (torch.complex64, equal, "Greatest absolute difference: 1.0"),
    ]:
        with pytest.raises(AssertionError, match=words) as raised:
            older(torch.ones(2, dtype=dtype) * 2, torch.ones(2, dtype=dtype))
        assert absolute in str(raised.value)
    with pytest.raises(AssertionError, match="up to 0.001 allowed"):
        older(torch.ones(2, dtype=torch.float16) * 2, torch.ones(2, dtype=torch.float64))
    with pytest.raises(AssertionError, match="'shape' do not match"):
        older(1.0, torch.ones(1))
    with pytest.raises(AssertionError, match=close):
        older(T([math.nan]), T([math.nan]), equal_nan=False)
    with pytest.raises(AssertionError, match="^hello"):
        older(torch.ones(1), torch.zeros(1), msg="hello")
    with pytest.raises(ValueError, match="Both 'rtol' and 'atol' must be either specified or omitted"):
        older(torch.ones(1), torch.ones(1), rtol=0.1)


def test_the_older_form_warns():
    with pytest.warns(FutureWarning, match="assert_allclose.*is deprecated since 1.12"):
        torch.testing.assert_allclose(T(1.0), T(1.0))
