"""Eigenvalues and singular values of many small matrices on CUDA: what they promise, checked in float64 on the CPU."""

import mica
import numpy as np
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

DTYPES = ["float32", "float64", "complex64", "complex128"]
EPSILON = {"float32": 1.2e-7, "complex64": 1.2e-7, "float64": 2.3e-16, "complex128": 2.3e-16}
# All numbers of lanes, odd and even sizes, counts that do not fill a warp or a block.
SIZES = [(1, 1), (3, 2), (70, 3), (1001, 4), (5, 5), (33, 8), (9, 9), (12, 16), (2001, 17), (2000, 32)]
SHAPES = [(1001, 4, 4), (3, 1, 1), (5, 1, 6), (70, 6, 1), (9, 3, 5), (40, 7, 2), (300, 32, 2), (256, 2, 32)]
SHAPES += [(257, 13, 32), (256, 32, 31), (256, 32, 32), (3, 15, 12), (2, 3, 8, 8)]
# A few of them, which are left to the host or to a library.
SIZES += [(1, 16), (3, 16), (2, 25), (9, 32)]
SHAPES += [(1, 17, 20), (3, 13, 32), (5, 32, 32)]


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng([seed, *shape])
    values = rng.standard_normal(shape)
    if "complex" in dtype:
        values = values + 1j * rng.standard_normal(shape)
    return mica.from_numpy(values).to(getattr(mica, dtype))


def wide(t):
    return t.detach().cpu().to(mica.complex128 if t.is_complex() else mica.float64)


def assert_small(difference, dtype, size):
    assert difference.abs().max().item() <= 30 * EPSILON[dtype] * size


def assert_orthonormal(columns, dtype):
    n = columns.shape[-1]
    assert_small(columns.mH @ columns - mica.eye(n, dtype=columns.dtype), dtype, columns.shape[-2])


def check_eigh(a, dtype, side="L"):
    """Of what lies in one triangle of a."""
    w = wide(a)
    half = w.tril(-1) if side == "L" else w.triu(1)
    w = half + half.mH + mica.diag_embed(mica.real(w.diagonal(dim1=-2, dim2=-1)).to(w.dtype))
    values, vectors = map(wide, mica.linalg.eigh(a.cuda(), side))
    size = max(w.abs().max().item(), 1e-300) * w.shape[-1]
    assert_orthonormal(vectors, dtype)
    assert_small(w @ vectors - vectors * values.to(vectors.dtype).unsqueeze(-2), dtype, size)
    assert (values.diff(dim=-1) >= 0).all().item()
    assert_small(wide(mica.linalg.eigvalsh(a.cuda(), side)) - values, dtype, size)
    assert_small(wide(mica.linalg.eigvalsh(w)) - values, dtype, size)


def check_svd(a, dtype, full=False):
    w = wide(a)
    u, s, vh = map(wide, mica.linalg.svd(a.cuda(), full_matrices=full))
    k = min(w.shape[-2:])
    assert u.shape[-1] == (w.shape[-2] if full else k) and vh.shape[-2] == (w.shape[-1] if full else k)
    size = max(w.abs().max().item(), 1e-300) * max(w.shape[-2:])
    assert_orthonormal(u, dtype)
    assert_orthonormal(vh.mH, dtype)
    assert_small((u[..., :k] * s.to(u.dtype).unsqueeze(-2)) @ vh[..., :k, :] - w, dtype, size)
    assert (s >= 0).all().item() and (s.diff(dim=-1) <= 0).all().item()
    assert_small(wide(mica.linalg.svdvals(a.cuda())) - s, dtype, size)
    assert_small(wide(mica.linalg.svdvals(w)) - s, dtype, size)


@pytest.mark.parametrize("dtype", DTYPES)
class TestMany:
    @pytest.mark.parametrize("count,n", SIZES)
    def test_eigh(self, count, n, dtype):
        for side in "LU":
            check_eigh(numbers((count, n, n), dtype), dtype, side)

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_svd(self, shape, dtype):
        check_svd(numbers(shape, dtype), dtype)
        check_svd(numbers(shape, dtype, 1), dtype, True)

    @pytest.mark.parametrize("n", [2, 3, 6, 16, 20])
    def test_matrices_that_lack_something(self, n, dtype):
        """Zeros, ones, equal and repeated values, few directions, numbers of very different sizes."""
        count = 256 if n > 16 else 9
        a = numbers((count, n, n), dtype)
        grades = mica.tensor([10.0 ** (-2 * i) for i in range(n)], dtype=mica.float64).to(a.dtype)
        few = numbers((count, n, 1), dtype, 1) @ numbers((count, 1, n), dtype, 2)
        cases = [mica.zeros_like(a), mica.ones_like(a), mica.eye(n).to(a.dtype).expand(count, n, n), few, a * grades]
        cases += [a * 1e30, a * 1e-30, a * mica.eye(n).to(a.dtype)]
        for case in cases:
            check_eigh(case, dtype)
            check_svd(case, dtype)
            check_svd(case[..., : n - 1], dtype, True)
            check_svd(case[..., : n - 1, :], dtype, True)


@pytest.mark.parametrize("n", [1, 4, 7, 32])
def test_numbers_that_are_not_finite(n):
    for bad in (float("nan"), float("inf")):
        a = mica.ones(6, n, n)
        a[4, n - 1, 0] = bad
        values = mica.linalg.eigh(a.cuda()).eigenvalues
        assert values.isnan().all(-1).tolist() == [False] * 4 + [True, False]  # as on the CPU
        with pytest.raises(RuntimeError):
            mica.linalg.svd(a.cuda())


def test_gradients_go_through():
    a = numbers((5, 4, 4), "float64")
    grads = []
    for device in ("cpu", "cuda"):
        leaf = a.clone().to(device).requires_grad_()
        values, vectors = mica.linalg.eigh(leaf + leaf.mT)
        s = mica.linalg.svd(leaf)[1]
        ((vectors.abs() * values.unsqueeze(-2)).sum() + (s**2).sum()).backward()
        grads.append(leaf.grad.cpu())
    assert (grads[0] - grads[1]).abs().max().item() <= 1e-9 * grads[0].abs().max().item()
