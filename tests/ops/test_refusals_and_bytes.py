"""What torch refuses is refused; matrices without eigenvalues; bytes of bools that are neither 0 nor 1."""

import warnings

import mica as torch
import pytest

NAN = float("nan")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_abs_of_complex_numbers_is_not_done_in_place(dtype):
    x = torch.tensor([3 + 4j], dtype=dtype)
    for call in (x.abs_, x.absolute_, lambda: torch._foreach_abs_([x]), x[:0].abs_):
        with pytest.raises(RuntimeError, match="In-place abs is not supported for complex tensors."):
            call()
    assert x.tolist() == [3 + 4j]  # a refusal changes nothing
    assert torch.abs(x, out=x).tolist() == [5 + 0j]
    assert torch.tensor([-2.0]).abs_().tolist() == [2.0]


def test_bools_are_not_ordered_by_topk_nor_members():
    flags = torch.tensor([True, False, True])
    for k in (0, 2):
        with pytest.raises(RuntimeError, match="topk does not support bool dtypes on CPU"):
            flags.topk(k)
    with pytest.raises(RuntimeError, match="selected index k out of range"):
        flags.topk(4)
    for call in (
        lambda: torch.isin(flags, flags),
        lambda: torch.isin(flags, True),
        lambda: torch.isin(True, flags),
        lambda: torch.isin(torch.arange(3), flags),
    ):
        with pytest.raises(RuntimeError, match=r"Unsupported input type encountered for isin\(\): Bool"):
            call()
    with pytest.raises(RuntimeError, match=r"Unsupported input type encountered for isin\(\): ComplexFloat"):
        torch.isin(torch.ones(2, dtype=torch.complex64), 1)
    assert torch.isin(torch.arange(3), torch.tensor([1])).tolist() == [False, True, False]


def test_topk_of_a_number():
    for k in (0, 1):
        values, indices = torch.tensor(2.5).topk(k)
        assert values.item() == 2.5 and indices.item() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_a_matrix_with_nan_has_nan_for_eigenvalues(dtype, size):
    good = torch.eye(size, dtype=dtype)
    bad = good.clone()
    bad[0, 0] = NAN
    values, vectors = torch.linalg.eigh(torch.stack([bad, good]))
    assert values[0].isnan().all() and values[1].tolist() == [1.0] * size
    assert vectors[0].isnan().all() and not vectors[1].isnan().any()
    assert torch.linalg.eigvalsh(bad).isnan().all()


def test_the_other_triangle_is_not_read():
    matrix = torch.eye(3)
    matrix[0, 2] = NAN
    assert torch.linalg.eigh(matrix)[0].tolist() == [1.0] * 3
    assert torch.linalg.eigh(matrix, UPLO="U")[0].isnan().all()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 40])
def test_a_matrix_with_nan_is_not_positive_definite(size):
    matrix = torch.eye(size)
    matrix[size - 1, size - 1] = NAN
    assert torch.linalg.cholesky_ex(matrix).info.item() == size
    with pytest.raises(torch.linalg.LinAlgError, match=f"leading minor of order {size} is not positive-definite"):
        torch.linalg.cholesky(matrix)


def _bytes(flags):
    return flags.view(torch.uint8).flatten().tolist()


@pytest.mark.parametrize("shape", [(2, 3), (2, 70, 3), (4, 64)])
def test_copies_of_bools_are_0_or_1(shape):
    torch.manual_seed(0)
    numbers = torch.randint(0, 256, shape, dtype=torch.uint8)
    numbers[0] = 0
    odd, right = numbers.view(torch.bool), (numbers != 0).byte()
    assert _bytes(odd) == numbers.flatten().tolist()  # a view shows the same bytes
    for made, wanted in (
        (odd.clone(), right),
        (torch.zeros_like(odd).copy_(odd), right),
        (odd.transpose(0, 1).contiguous(), right.transpose(0, 1)),
        (odd.repeat(2, *[1] * (len(shape) - 1)), right.repeat(2, *[1] * (len(shape) - 1))),
        (odd[..., ::2].clone(), right[..., ::2]),
        (torch.zeros_like(odd).transpose(0, 1).copy_(odd.transpose(0, 1)).transpose(0, 1).contiguous(), right),
    ):
        assert _bytes(made) == wanted.flatten().tolist()


FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_floats_of_eight_bits_have_products_and_absolute_values(dtype):
    every = torch.arange(256, dtype=torch.uint8).view(dtype)
    other = every[torch.randperm(256)]
    product = (every.float() * other.float()).to(dtype)
    assert torch.equal((every * other).view(torch.uint8), product.view(torch.uint8))
    assert torch.equal(every.clone().mul_(other).view(torch.uint8), product.view(torch.uint8))
    for call in (lambda: every * 2, lambda: every * other[0], lambda: every[:1] * other[:1]):
        with pytest.raises(NotImplementedError, match='"mul_cpu_reduced_float" not implemented'):
            call()
    assert (every[5] * other).shape == (256,)  # only the second operand is asked, as in torch
    if dtype == torch.float8_e8m0fnu:
        with pytest.raises(NotImplementedError, match='"abs_cpu" not implemented'):
            every.abs()
    else:
        assert torch.equal(every.abs().view(torch.uint8), every.float().abs().to(dtype).view(torch.uint8))
    with pytest.raises(NotImplementedError, match="not implemented"):
        every + other


@pytest.mark.parametrize("dtype", [*FLOAT8, torch.complex32], ids=str)
def test_powers_that_need_no_arithmetic_take_every_dtype(dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex32 is experimental
        x = torch.tensor([1.0, 2.0, 0.5, 4.0]).to(dtype)
    for exponent in (1, 1.0, 0, 0.0):
        expected = x if exponent else torch.ones(4).to(dtype)
        for found in (x**exponent, x.clone().pow_(exponent), torch.pow(x, exponent, out=torch.empty_like(x))):
            assert found.dtype == dtype and torch.equal(found.view(torch.uint8), expected.view(torch.uint8))
    assert torch.equal((1**x).view(torch.uint8), torch.ones(4).to(dtype).view(torch.uint8))
    for call in (lambda: x**2, lambda: x**1.0625, lambda: 2**x, lambda: x**x, lambda: x ** torch.tensor(1)):
        with pytest.raises(NotImplementedError, match="not implemented"):
            call()
