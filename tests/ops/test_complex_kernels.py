"""Sums, means, products, angles and signs of complex numbers, of sizes that fill vectors, blocks and threads or do not."""

import cmath
import math

import mica as torch
import pytest

COUNTS = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 1000, 70001)
LIMITS = {torch.complex64: 3e-6, torch.complex128: 1e-14}


def exact_sum(values):
    return complex(math.fsum(each.real for each in values), math.fsum(each.imag for each in values))


def close(found, wanted, size, dtype):
    return abs(complex(found) - wanted) <= LIMITS[dtype] * max(1.0, size)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("count", COUNTS)
def test_sums_and_inner_products(count, dtype):
    torch.manual_seed(count)
    a, b = (torch.randn(count, dtype=dtype) for _ in range(2))
    x, y = a.tolist(), b.tolist()
    size = sum(map(abs, x))
    assert close(torch.sum(a).item(), exact_sum(x), size, dtype)
    assert close(torch.sum(a.conj()).item(), exact_sum(x).conjugate(), size, dtype)
    if count:
        assert close(torch.mean(a).item(), exact_sum(x) / count, size / count, dtype)
    products = [p * q for p, q in zip(x, y, strict=True)]
    size = sum(map(abs, products))
    spaced = torch.stack([a, b], 1)[:, 0]
    for found in (torch.dot(a, b), a @ b, torch.vdot(a.conj(), b), torch.dot(spaced, b)):
        assert close(found.item(), exact_sum(products), size, dtype)
    inner = exact_sum([p.conjugate() * q for p, q in zip(x, y, strict=True)])
    backwards = torch.stack([b.flip(0), a], 1)[:, 0]
    for found in (torch.vdot(a, b), torch.vdot(spaced, b), torch.vdot(a, backwards.flip(0)), torch.dot(a.conj(), b)):
        assert close(found.item(), inner, size, dtype)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (3, 7), (64, 33), (33, 64), (200, 130), (2, 3, 4, 5)])
def test_sums_of_rows_and_columns(shape, dtype):
    torch.manual_seed(1)
    for x in (torch.randn(shape, dtype=dtype), torch.randn(shape[::-1], dtype=dtype).permute(*range(len(shape))[::-1])):
        for dim in range(len(shape)):
            lines = x.movedim(dim, -1).reshape(-1, shape[dim]).tolist()
            found = torch.sum(x, dim).reshape(-1).tolist()
            means = torch.mean(x, dim).reshape(-1).tolist()
            for line, total, mean in zip(lines, found, means, strict=True):
                size = sum(map(abs, line))
                assert close(total, exact_sum(line), size, dtype)
                assert close(mean, exact_sum(line) / len(line), size / len(line), dtype)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("count", COUNTS[:-1])
def test_products_of_rows(count, dtype):
    torch.manual_seed(count)
    x = torch.randn(2, count, dtype=dtype)
    x = x / x.abs()  # of magnitude one
    for row, found in zip(x.tolist(), torch.prod(x, 1).tolist(), strict=True):
        assert close(found, math.prod(row, start=1 + 0j), count, dtype)


def test_infinities_stay_in_their_part():
    for dtype in LIMITS:
        x = torch.tensor([complex(math.inf, 1.0), 2j] * 20, dtype=dtype)
        assert torch.sum(x).item() == complex(math.inf, 60.0)
        assert torch.sum(x.reshape(20, 2), 0).tolist() == [complex(math.inf, 20.0), 40j]


PARTS = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 1e-40, 3e38, -3e38, 0.5)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("count", [1, 3, 7, 8, 15, 16, 17, 100])
def test_angles_and_signs(count, dtype):
    values = [complex(a, b) for a in PARTS for b in PARTS][:count]
    x = torch.tensor(values, dtype=dtype)
    exact = x.tolist()
    for z, angle, sign in zip(exact, torch.angle(x).tolist(), torch.sgn(x).tolist(), strict=True):
        phase = cmath.phase(z)
        assert math.isclose(angle, phase, rel_tol=3e-7, abs_tol=1e-44 if dtype == torch.complex64 else 0.0)
        assert math.copysign(1, angle) == math.copysign(1, phase)
        if cmath.isfinite(z) and (1e-30 < abs(z) < 1e38 or dtype == torch.complex128 or not z):
            assert abs(sign - (z / abs(z) if z else 0)) < 3e-7, z
        elif cmath.isinf(z) and not cmath.isinf(complex(z.real, 0)):
            assert sign.real == 0 and math.isnan(sign.imag)
    for view in (x[:1].expand(5), torch.stack([x, x], 1)[:, 1], x.conj()):
        assert torch.equal(torch.angle(view), torch.stack([torch.angle(each.resolve_conj()) for each in view]))
        signs = [torch.sgn(each.resolve_conj()) for each in view]
        assert torch.equal(
            torch.view_as_real(torch.sgn(view)).nan_to_num(7), torch.view_as_real(torch.stack(signs)).nan_to_num(7)
        )


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("count", COUNTS[:-1])
def test_sums_with_factors_and_squares(count, dtype):
    """In vectors as number by number, bit for bit; a factor multiplies as a complex number does."""
    torch.manual_seed(count)
    a, b = (torch.randn(count, dtype=dtype) for _ in range(2))
    singles = [(a[i : i + 1], b[i : i + 1]) for i in range(count)]
    for f in (
        lambda x, y: x - y,
        lambda x, y: torch.sub(x, y, alpha=2),
        lambda x, y: torch.add(x, y, alpha=0.5 - 1.5j),
        lambda x, y: torch.rsub(x, y, alpha=2j),
        lambda x, y: x.square(),
    ):
        whole = f(a, b)
        assert [whole[i].item() for i in range(count)] == [f(x, y).item() for x, y in singles]
    limit = LIMITS[dtype] * 10
    for found, x, y in zip((a + b * (0.5 - 1.5j)).tolist(), a.tolist(), b.tolist(), strict=True):
        assert abs(found - (x + (0.5 - 1.5j) * y)) <= limit
    for found, x in zip(a.square().tolist(), a.tolist(), strict=True):
        assert abs(found - x * x) <= limit * max(1, abs(x) ** 2)


@pytest.mark.parametrize("dtype", LIMITS)
def test_powers_that_programs_use(dtype):
    """By products, quotients and roots, so that those of whole numbers are exact."""
    x = torch.tensor([1j, -1 - 1j, 2.5 - 3.5j, 0.5 + 0j] * 9, dtype=dtype)
    for exponent, exact in ((2, 2j), (3, 2 - 2j), (-1, -0.5 + 0.5j), (-2, -0.5j)):
        found = x**exponent
        assert found[1] == exact
        for z, power in zip(x.tolist(), found.tolist(), strict=True):
            assert abs(power - z**exponent) <= LIMITS[dtype] * max(1, abs(z**exponent))
    assert torch.equal(x**0.5, x.sqrt()) and torch.equal(x**-0.5, x.rsqrt()) and torch.equal(x**-1, x.reciprocal())
    assert (x**3)[0].item() == -1j and torch.equal(x**3, x * x * x)
    infinite = torch.tensor([complex(math.inf, 0), 0], dtype=dtype)
    assert (infinite**0.5).tolist() == [complex(math.inf, 0), 0]
    zeroth = (infinite**-0.5)[1].item()
    assert zeroth.real == math.inf and math.isnan(zeroth.imag)
    for view in (x.reshape(4, 9).T, x[::3], x[:1].expand(7), x.conj()):
        assert torch.equal(view**3, view.clone() ** 3)
    y = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(y**3, y, torch.ones_like(y))
    assert torch.allclose(gradient, (3 * x * x).conj())


def test_signs_of_extreme_numbers():
    for size in (1e-300, 1e-160, 1.0, 1e160, 1e300):
        found = torch.sgn(torch.tensor([complex(3 * size, 4 * size)] * 9, dtype=torch.complex128))
        assert all(abs(each - (0.6 + 0.8j)) < 1e-15 for each in found.tolist())
