"""Matrices so large that they are factored in panels, by several threads."""

import mica
import pytest
from linalg_checks import REAL, close, definite, make
from mica import linalg


@pytest.fixture
def threads():
    """Three threads: a large matrix is then cut into panels, and the pool shares the rest."""
    before = mica.get_num_threads()
    mica.set_num_threads(3)
    yield
    mica.set_num_threads(before)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(256, 256), (300, 300), (300, 421), (421, 300)], ids=str)
def test_one_large_matrix_on_several_threads(threads, dtype, shape):
    a = make(*shape, dtype=dtype)
    p, lower, upper = linalg.lu(a)
    close(p @ lower @ upper, a)
    assert float(lower.abs().max()) <= 1
    for mode in ("reduced", "complete"):
        q, r = linalg.qr(a, mode=mode)
        close(q @ r, a)
        close(q.mT @ q, mica.eye(q.shape[1], dtype=dtype))
        assert (r == r.triu()).all()
    if shape[0] != shape[1]:
        return
    positive = definite(*shape, dtype=dtype)
    for above in (False, True):
        factor = linalg.cholesky(positive, upper=above)
        close(factor.mT @ factor if above else factor @ factor.mT, positive)
        assert (factor == (factor.triu() if above else factor.tril())).all()
    close(linalg.inv(positive) @ positive, mica.eye(shape[0], dtype=dtype))
    solution = linalg.solve(a, a.mT)
    size = solution.abs().max()  # which the rounding errors of the product are relative to
    close(a @ (solution / size), a.mT / size)
    for columns in (1, 5, 32):  # few of them go by strips
        b = make(shape[0], columns, dtype=dtype)
        solution = linalg.solve(a, b)
        size = solution.abs().max()
        close(a @ (solution / size), b / size)
    one, symmetric = mica.eye(shape[0], dtype=dtype), a + a.mT
    for half, named in ((symmetric.tril(), "L"), (symmetric.triu(), "U")):
        values, vectors = linalg.eigh(half, UPLO=named)
        close(symmetric @ vectors, vectors * values)
        close(vectors.mT @ vectors, one)
    u, values, vh = linalg.svd(a)
    close((u * values) @ vh, a)
    close(u.mT @ u, one)
    close(vh @ vh.mT, one)
    tiny = (positive * 1e-30).float()  # squares of it underflow: scaled first
    close(linalg.eigh(tiny)[0] * 1e30, linalg.eigvalsh(positive).float())


def test_one_large_matrix_without_a_factor(threads):
    a = make(300, 300)
    a[:, 200] = a[:, 10]
    a[:, 250] = a[:, 10]
    factors, pivots, info = linalg.lu_factor_ex(a - a)
    assert info.item() == 1 and (pivots == mica.arange(1, 301)).all() and (factors == 0).all()
    with pytest.raises(linalg.LinAlgError, match="the input matrix is singular"):
        linalg.inv(a * 0)
    positive = definite(300, 300)
    positive[170, 170] = -1
    assert linalg.cholesky_ex(positive).info.item() == 171
    for size in (0.0, 1e-37, 1e30):  # columns of zeros, and of numbers whose squares leave the range
        scaled = (a * size).float()
        q, r = linalg.qr(scaled)
        close(q.mT @ q, mica.eye(300))
        close(q @ r / (size or 1), scaled / (size or 1))
    pivots = linalg.lu_factor_ex(a * float("nan")).pivots
    assert (pivots >= 1).all() and (pivots <= 300).all()


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_symmetric_matrices_whose_halves_come_apart(threads, dtype):
    n = 257
    one, beside = mica.eye(n, dtype=dtype), mica.diag(mica.ones(n - 1, dtype=dtype), 1)
    q = linalg.qr(make(n, n, dtype=dtype))[0]
    steps = (mica.arange(n) % 5).to(dtype)
    matrices = {
        "tridiagonal": 2 * one - beside - beside.mT,
        "close pairs": mica.diag((mica.arange(n) - n // 2).abs().to(dtype)) + beside + beside.mT,
        "repeated": q @ mica.diag(steps) @ q.mT,
        "diagonal": mica.diag(steps),
        "of rank 3": q[:, :3] @ q[:, :3].mT,
    }
    for name, a in matrices.items():
        a = (a + a.mT) / 2
        values, vectors = linalg.eigh(a)
        assert (values[1:] >= values[:-1]).all(), name
        close(a @ vectors, vectors * values)
        close(vectors.mT @ vectors, one)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(48, 48), (3, 50, 50), (2, 64, 100), (2, 100, 64), (5, 130, 130)], ids=str)
def test_matrices_of_middle_size(threads, dtype, shape):
    a = make(*shape, dtype=dtype)
    for mode in ("reduced", "complete", "r"):
        q, r = linalg.qr(a, mode=mode)
        assert (r == r.triu()).all()
        if mode != "r":
            close(q @ r, a)
            close(q.mT @ q, mica.eye(q.shape[-1], dtype=dtype).expand(*q.shape[:-2], -1, -1))
    reflectors, tau = mica.geqrf(a if shape[-2] >= shape[-1] else a.mT)
    q = linalg.householder_product(reflectors, tau)
    close(q @ reflectors[..., : tau.shape[-1], :].triu(), a if shape[-2] >= shape[-1] else a.mT)
    if shape[-1] == shape[-2]:
        positive = definite(*shape, dtype=dtype)
        close(linalg.inv(positive) @ positive, mica.eye(shape[-1], dtype=dtype).expand(*shape))
        turned = positive.flip(-1)  # pivots are needed
        close(linalg.inv(turned) @ turned, mica.eye(shape[-1], dtype=dtype).expand(*shape))


def test_a_singular_matrix_of_middle_size_is_named():
    a = definite(3, 60, 60)
    a[1] = 0
    assert linalg.inv_ex(a).info.tolist() == [0, 1, 0]
    with pytest.raises(linalg.LinAlgError, match="the input matrix is singular"):
        linalg.inv(a)
    for size in (0.0, 1e-37, 1e30):
        scaled = (make(2, 60, 60) * size).float()
        q, r = linalg.qr(scaled)
        close(q.mT @ q, mica.eye(60).expand(2, -1, -1))
        close(q @ r / (size or 1), scaled / (size or 1))
