"""Decompositions on CUDA: what they promise, checked in float64 on the CPU; sizes on both sides of every choice of kernel."""

import mica
import numpy as np
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

DTYPES = ["float32", "float64", "complex64", "complex128"]


def cases(shapes):
    """Every shape in two dtypes, the first few in all."""
    return [(shape, dtype) for i, shape in enumerate(shapes) for dtype in (DTYPES if i < 3 else DTYPES[::3])]


EPSILON = {"float32": 1.2e-7, "complex64": 1.2e-7, "float64": 2.3e-16, "complex128": 2.3e-16}
# A warp, a block, cuSOLVER; one matrix, several, none.
SQUARES = [
    (1, 1),
    (4, 4),
    (3, 5, 5),
    (2, 2, 33, 33),
    (9, 70, 70),
    (70, 70),
    (130, 130),
    (300, 300),
    (0, 4, 4),
    (2, 0, 0),
]
OBLONGS = [(4, 3), (3, 4), (5, 7, 2), (2, 40, 70), (9, 70, 40), (200, 150), (150, 200), (3, 0), (2, 0, 3)]


def matrix(shape, dtype, seed=0):
    rng = np.random.default_rng([seed, *shape])
    values = rng.standard_normal(shape)
    if "complex" in dtype:
        values = values + 1j * rng.standard_normal(shape)
    return mica.from_numpy(values).to(getattr(mica, dtype)).cuda()


def wide(t):
    return t.detach().cpu().to(mica.complex128 if t.is_complex() else mica.float64)


def assert_small(difference, dtype, scale):
    """The largest element of a difference, against what roundings of a matrix of this size add up to."""
    if difference.numel():
        assert difference.abs().max().item() <= 30 * EPSILON[dtype] * scale


def scale_of(t):
    return max(1.0, t.abs().max().item() if t.numel() else 1.0) * max(t.shape[-2:] or (1,)) * 2


def identity_like(t):
    n = t.shape[-1]
    return mica.eye(n, dtype=t.dtype).expand(*t.shape[:-2], n, n)


@pytest.mark.parametrize("shape,dtype", cases(SQUARES), ids=str)
class TestSquare:
    def test_inverse_and_solve(self, shape, dtype):
        a = matrix(shape, dtype) + 2 * shape[-1] ** 0.5 * mica.eye(shape[-1], device="cuda")
        w = wide(a)
        assert_small(wide(mica.linalg.inv(a)) @ w - identity_like(w), dtype, scale_of(w))
        b = matrix((*shape[:-1], 3), dtype, 1)
        assert_small(w @ wide(mica.linalg.solve(a, b)) - wide(b), dtype, scale_of(w) * 4)
        left = mica.linalg.solve(a, b.mT.contiguous(), left=False)
        assert_small(wide(left) @ w - wide(b).mT, dtype, scale_of(w) * 4)
        lu, pivots = mica.linalg.lu_factor(a)
        adjoint = mica.linalg.lu_solve(lu, pivots, b, adjoint=True)
        assert_small(w.mH @ wide(adjoint) - wide(b), dtype, scale_of(w) * 4)
        assert mica.linalg.det(a).device.type == "cuda"

    def test_cholesky(self, shape, dtype):
        a = matrix(shape, dtype)
        spd = wide(a) @ wide(a).mH + shape[-1] * mica.eye(shape[-1])
        given = spd.to(a.dtype).cuda()
        lower = wide(mica.linalg.cholesky(given))
        assert_small(lower @ lower.mH - wide(given), dtype, scale_of(spd))
        assert mica.equal(lower, lower.tril())
        upper = wide(mica.linalg.cholesky(given, upper=True))
        assert_small(upper.mH @ upper - wide(given), dtype, scale_of(spd))
        b = matrix((*shape[:-1], 2), dtype, 1)
        for factor, up in ((lower, False), (upper, True)):
            there = factor.to(a.dtype).cuda()
            assert_small(
                wide(given) @ wide(mica.cholesky_solve(b, there, upper=up)) - wide(b), dtype, scale_of(spd) * 4
            )
            inverse = wide(mica.cholesky_inverse(there, upper=up))
            assert_small(inverse @ wide(given) - identity_like(spd), dtype, scale_of(spd) * 4)

    @pytest.mark.parametrize("upper", [False, True])
    @pytest.mark.parametrize("left", [False, True])
    def test_triangular_solve(self, shape, dtype, upper, left):
        n = shape[-1]
        a = matrix(shape, dtype) / max(n, 1) + 2 * mica.eye(n, device="cuda")
        b = matrix((*shape[:-2], n, 5) if left else (*shape[:-2], 5, n), dtype, 1)
        for unit in (False, True):
            triangle = wide(a.triu() if upper else a.tril())
            if unit:
                triangle = triangle - mica.diag_embed(triangle.diagonal(dim1=-2, dim2=-1)) + identity_like(triangle)
            x = wide(mica.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit))
            assert_small((triangle @ x if left else x @ triangle) - wide(b), dtype, scale_of(triangle) * 4)

    def test_eigh(self, shape, dtype):
        a = matrix(shape, dtype)
        w = wide(a) + wide(a).mH
        for side in "LU":
            values, vectors = map(wide, mica.linalg.eigh(w.to(a.dtype).cuda(), side))
            rebuilt = (vectors * values.to(vectors.dtype).unsqueeze(-2)) @ vectors.mH
            assert_small(rebuilt - w, dtype, scale_of(w) * 8)
            assert_small(vectors.mH @ vectors - identity_like(w), dtype, scale_of(identity_like(w)) * 8)
            assert (values.diff(dim=-1) >= 0).all().item()
        assert_small(wide(mica.linalg.eigvalsh(w.to(a.dtype).cuda())) - values, dtype, scale_of(w) * 8)


@pytest.mark.parametrize("shape,dtype", cases(OBLONGS + SQUARES[1:6]), ids=str)
class TestOblong:
    def test_lu(self, shape, dtype):
        a = matrix(shape, dtype)
        p, lower, upper = map(wide, mica.linalg.lu(a))
        assert_small(p @ lower @ upper - wide(a), dtype, scale_of(a))

    def test_lu_without_pivots(self, shape, dtype):
        k = min(shape[-2:])
        a = matrix(shape, dtype)
        a[..., :k, :k] += 2 * k * mica.eye(k, device="cuda")
        _, lower, upper = map(wide, mica.linalg.lu(a, pivot=False))
        assert_small(lower @ upper - wide(a), dtype, scale_of(a) * 2)
        pivots = mica.linalg.lu_factor_ex(a, pivot=False)[1]
        assert mica.equal(pivots.cpu(), mica.arange(1, k + 1, dtype=mica.int32).expand(pivots.shape))

    @pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
    def test_qr(self, shape, dtype, mode):
        a = matrix(shape, dtype)
        q, r = mica.linalg.qr(a, mode)
        if mode == "r":
            here = mica.linalg.qr(wide(a), "r")[1]
            return assert_small(wide(r).abs() - here.abs(), dtype, scale_of(a) * 4)
        assert_small(wide(q) @ wide(r) - wide(a), dtype, scale_of(a))
        gram = wide(q).mH @ wide(q)
        assert_small(gram - identity_like(gram), dtype, scale_of(gram))
        assert mica.equal(r.cpu(), r.cpu().triu())

    def test_reflections(self, shape, dtype):
        a = matrix(shape, dtype)
        packed, tau = mica.geqrf(a)
        if shape[-2] >= shape[-1]:
            q = mica.linalg.householder_product(packed, tau)
            upper = wide(packed).triu()[..., : shape[-1], :]
            assert_small(wide(q) @ upper - wide(a), dtype, scale_of(a))
        for left in (True, False):
            for transpose in (True, False):
                c = matrix((*shape[:-2], shape[-2], 3) if left else (*shape[:-2], 3, shape[-2]), dtype, 2)
                there = mica.ormqr(packed, tau, c, left, transpose)
                here = mica.ormqr(wide(packed), wide(tau), wide(c), left, transpose)
                assert_small(wide(there) - here, dtype, scale_of(a))

    @pytest.mark.parametrize("full", [False, True])
    def test_svd(self, shape, dtype, full):
        a = matrix(shape, dtype)
        u, s, vh = map(wide, mica.linalg.svd(a, full_matrices=full))
        k = min(shape[-2:])
        rebuilt = (u[..., :k] * s.to(u.dtype).unsqueeze(-2)) @ vh[..., :k, :]
        assert_small(rebuilt - wide(a), dtype, scale_of(a) * 8)
        for gram in (u.mH @ u, vh @ vh.mH):
            assert_small(gram - identity_like(gram), dtype, scale_of(gram) * 8)
        assert (s.diff(dim=-1) <= 0).all().item()
        assert_small(wide(mica.linalg.svdvals(a)) - s, dtype, scale_of(a) * 8)

    @pytest.mark.parametrize("driver", [None, "gels", "gelsd"])
    def test_lstsq(self, shape, dtype, driver):
        if 0 in shape:
            pytest.skip("torch has no rule for matrices without elements")
        a = matrix(shape, dtype)
        b = matrix((*shape[:-1], 2), dtype, 1)
        there = mica.linalg.lstsq(a, b, driver=driver)
        here = mica.linalg.lstsq(wide(a), wide(b), driver=driver or "gels")
        # The error of a solution grows with the condition of the matrix.
        s = mica.linalg.svdvals(wide(a))
        condition = (s.amax(-1) / s.amin(-1)).max().item()
        assert_small(wide(there[0]) - here[0], dtype, scale_of(here[0]) * condition)
        assert tuple(there[1].shape) == tuple(here[1].shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 5, 5), (70, 70), (260, 260)], ids=str)
def test_eig(shape, dtype):
    a = matrix(shape, dtype)
    values, vectors = mica.linalg.eig(a)
    w, values, vectors = wide(a).to(mica.complex128), wide(values), wide(vectors)
    assert_small(w @ vectors - vectors * values.unsqueeze(-2), dtype, scale_of(a) * 40)
    assert_small(values.sum(-1) - wide(mica.linalg.eigvals(a)).sum(-1), dtype, scale_of(a) * 40)


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ldl(dtype, hermitian):
    a = matrix((2, 5, 5), dtype)
    w = wide(a) + (wide(a).mH if hermitian else wide(a).mT)
    given = w.to(a.dtype).cuda()
    factors, pivots = mica.linalg.ldl_factor(given, hermitian=hermitian)
    b = matrix((2, 5, 2), dtype, 1)
    x = mica.linalg.ldl_solve(factors, pivots, b, hermitian=hermitian)
    assert_small(w @ wide(x) - wide(b), dtype, scale_of(w) * 40)


@pytest.mark.parametrize("n", [3, 90])
def test_what_is_refused(n):
    singular = mica.ones(n, n, device="cuda")
    with pytest.raises(mica.linalg.LinAlgError, match="linalg.inv: The diagonal element 2 is zero"):
        mica.linalg.inv(singular)
    with pytest.raises(mica.linalg.LinAlgError, match="The solver failed because the input matrix is singular"):
        mica.linalg.solve(singular, mica.ones(n, device="cuda"))
    batch = mica.stack([mica.eye(n, device="cuda"), -mica.eye(n, device="cuda")])
    with pytest.raises(mica.linalg.LinAlgError, match=r"\(Batch element 1\): The factorization could not be completed"):
        mica.linalg.cholesky(batch)
    assert mica.linalg.cholesky_ex(batch)[1].tolist() == [0, 1]
    with pytest.raises(mica.linalg.LinAlgError, match="non-finite"):
        mica.linalg.svd(mica.full((n, n), float("nan"), device="cuda"))
    assert mica.linalg.eigh(mica.full((n, n), float("inf"), device="cuda"))[0].isnan().all()  # as on the CPU
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        mica.linalg.eig(mica.full((n, n), float("nan"), device="cuda"))


def test_many_small_matrices():
    """More than one warp per matrix would be too slow, and more matrices than blocks must all be met."""
    a = mica.randn(10000, 4, 4, dtype=mica.float64, device="cuda") + 4 * mica.eye(4, dtype=mica.float64, device="cuda")
    assert_small(wide(mica.linalg.inv(a)) @ wide(a) - identity_like(wide(a)), "float64", 64)
    q, r = mica.linalg.qr(a)
    assert_small(wide(q) @ wide(r) - wide(a), "float64", 64)
    u, s, vh = mica.linalg.svd(a)
    assert_small(wide(u) @ mica.diag_embed(wide(s)) @ wide(vh) - wide(a), "float64", 256)
    symmetric = a + a.mT
    values, vectors = mica.linalg.eigh(symmetric)
    assert_small(wide(symmetric) @ wide(vectors) - wide(vectors) * wide(values).unsqueeze(-2), "float64", 256)
