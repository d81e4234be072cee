"""Linear algebra: what decompositions must satisfy, for LAPACK's path and for that of many small matrices."""

import os
import subprocess
import sys

import mica
import pytest
from linalg_checks import REAL, close, definite, make
from mica import linalg
from mica.autograd import gradcheck, gradgradcheck

ALL = (*REAL, mica.complex64, mica.complex128)
# Batches of one, of few, and of so many that small matrices have a kernel of their own; with a rest that fills no vector.
BATCHES = ((), (3,), (2, 0), (21,), (5, 9))


@pytest.fixture(params=ALL, ids=str)
def dtype(request):
    return request.param


@pytest.fixture(params=BATCHES, ids=str)
def batch(request):
    return request.param


@pytest.mark.parametrize("n", [1, 2, 4, 7, 33])
def test_factors_multiply_to_the_matrix(dtype, batch, n):
    a, s = make(*batch, n, n, dtype=dtype), definite(*batch, n, n, dtype=dtype)
    lower = linalg.cholesky(s)
    close(lower @ lower.mH, s)
    assert (lower.triu(1) == 0).all()
    upper = linalg.cholesky(s, upper=True)
    close(upper.mH @ upper, s)
    p, low, u = linalg.lu(a)
    close(p @ low @ u, a)
    q, r = linalg.qr(a)
    close(q @ r, a)
    close(q.mH @ q, mica.eye(n, dtype=dtype).expand(a.shape))
    assert (r.tril(-1) == 0).all()
    u, s_values, vh = linalg.svd(a)
    close((u * s_values.unsqueeze(-2)) @ vh, a)
    close(u.mH @ u, mica.eye(n, dtype=dtype).expand(a.shape))
    close(vh @ vh.mH, mica.eye(n, dtype=dtype).expand(a.shape))
    assert (s_values[..., 1:] <= s_values[..., :-1]).all() and (s_values >= 0).all()
    close(linalg.svdvals(a), s_values)
    values, vectors = linalg.eigh(s)
    close((vectors * values.unsqueeze(-2)) @ vectors.mH, s)
    close(vectors.mH @ vectors, mica.eye(n, dtype=dtype).expand(a.shape))
    assert (values[..., 1:] >= values[..., :-1]).all()
    close(linalg.eigvalsh(s, "U"), values)
    values, vectors = linalg.eig(a)
    close(a.to(values.dtype) @ vectors, vectors * values.unsqueeze(-2))


@pytest.mark.parametrize("n", [1, 2, 4, 7, 33])
def test_inverses_and_solutions(dtype, batch, n):
    a = make(*batch, n, n, dtype=dtype) + 3 * mica.eye(n, dtype=dtype) * n**0.5
    b = make(*batch, n, 2, dtype=dtype, seed=1)
    one = mica.eye(n, dtype=dtype).expand(a.shape)
    close(a @ linalg.inv(a), one)
    close(a @ linalg.solve(a, b), b)
    close(linalg.solve(a, b.mT, left=False) @ a, b.mT)
    close(linalg.lu_solve(*linalg.lu_factor(a), b), linalg.solve(a, b))
    close(a.mH @ linalg.lu_solve(*linalg.lu_factor(a), b, adjoint=True), b)
    close(linalg.lu_solve(*linalg.lu_factor(a), b.mT, left=False, adjoint=True) @ a.mH, b.mT)
    close(a.triu() @ linalg.solve_triangular(a, b, upper=True), b)
    close(linalg.solve_triangular(a, b.mT, upper=False, left=False) @ a.tril(), b.mT)
    s = definite(*batch, n, n, dtype=dtype)
    factor = linalg.cholesky(s)
    close(s @ mica.cholesky_solve(b, factor), b)
    close(mica.cholesky_inverse(factor), linalg.inv(s))
    close(s @ linalg.ldl_solve(*linalg.ldl_factor(s, hermitian=True), b, hermitian=True), b)
    close(linalg.pinv(a), linalg.inv(a))
    if n < 33:  # it would overflow
        sign, log = linalg.slogdet(a)
        close(sign * log.exp().to(dtype), linalg.det(a))
    close(linalg.matrix_power(a, -2), linalg.inv(a @ a))


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_batches_of_small_triangles(dtype, upper, unit):
    a, b = make(6, 5, 5, dtype=dtype) + 3 * mica.eye(5, dtype=dtype), make(6, 5, 3, dtype=dtype)
    triangle = a.triu(int(unit)) if upper else a.tril(-int(unit))
    if unit:
        triangle = triangle + mica.eye(5, dtype=dtype)
    close(triangle @ linalg.solve_triangular(a, b, upper=upper, unitriangular=unit), b)
    solution = mica.triangular_solve(b, a, upper=upper, transpose=True, unitriangular=unit).solution
    close(triangle.mT @ solution, b)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 5, 3), (9, 3, 4), (0, 3), (3, 0), (2, 0, 0)])
def test_rectangles(dtype, shape):
    a = make(*shape, dtype=dtype)
    m, n = shape[-2:]
    for mode, columns in (("reduced", min(m, n)), ("complete", m)):
        q, r = linalg.qr(a, mode)
        assert q.shape[-2:] == (m, columns) and r.shape[-2:] == (columns, n)
        close(q @ r, a)
        close(q.mH @ q, mica.eye(columns, dtype=dtype).expand(*shape[:-2], columns, columns))
    for full in (False, True):
        u, s, vh = linalg.svd(a, full_matrices=full)
        assert u.shape[-1] == (m if full else min(m, n)) and vh.shape[-2] == (n if full else min(m, n))
        k = min(m, n)
        close((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a)
    p, low, u = linalg.lu(a)
    close(p @ low @ u, a)
    inverse = linalg.pinv(a)
    close(a @ inverse @ a, a)
    assert (linalg.matrix_rank(a) == min(m, n)).all()


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4)])
def test_least_squares(dtype, shape, driver):
    a, b = make(*shape, dtype=dtype), make(*shape[:-1], 2, dtype=dtype, seed=3)
    found = linalg.lstsq(a, b, driver=driver)
    close(found.solution, linalg.pinv(a) @ b)
    if shape[-2] > shape[-1] and driver != "gelsy":
        rest = (a @ found.solution - b).abs().square().sum(-2)
        close(found.residuals, rest, dtype)
    if driver != "gels":
        assert (found.rank == min(shape[-2:])).all()
    if driver in ("gelsd", "gelss"):
        close(found.singular_values, linalg.svdvals(a))


def test_singular_input_is_named():
    singular = mica.zeros(3, 3)
    batch = mica.stack([mica.eye(3), singular])
    many = mica.eye(4).repeat(20, 1, 1)
    many[13, 2, 2] = 0
    with pytest.raises(
        linalg.LinAlgError, match=r"linalg.inv: The diagonal element 1 is zero, the inversion could not"
    ):
        linalg.inv(singular)
    with pytest.raises(linalg.LinAlgError, match=r"linalg.inv: \(Batch element 1\): The diagonal element 1 is zero"):
        linalg.inv(batch)
    with pytest.raises(linalg.LinAlgError, match=r"linalg.inv: \(Batch element 13\): The diagonal element 3 is zero"):
        linalg.inv(many)
    with pytest.raises(linalg.LinAlgError, match=r"linalg.cholesky: .*the leading minor of order 3 is not positive"):
        linalg.cholesky(many)
    with pytest.raises(
        linalg.LinAlgError, match=r"torch.linalg.solve: The solver failed because the input matrix is sing"
    ):
        linalg.solve(singular, mica.ones(3))
    with pytest.raises(RuntimeError, match=r"torch.linalg.lu_factor: U\[1,1\] is zero and using it on lu_solve"):
        linalg.lu_factor(singular)
    assert linalg.inv_ex(many).info.nonzero().tolist() == [[13]]
    assert linalg.cholesky_ex(many).info[13] == 3
    assert linalg.lu_factor_ex(many).info[13] == 3
    assert linalg.det(many)[13] == 0 and linalg.det(many)[12] == 1
    with pytest.raises(linalg.LinAlgError):
        linalg.inv_ex(batch, check_errors=True)
    assert issubclass(linalg.LinAlgError, RuntimeError) and linalg.LinAlgError is mica._C._LinAlgError
    assert (linalg.LinAlgError.__module__, linalg.LinAlgError.__name__) == ("torch._C", "_LinAlgError")


def test_lstsq_of_one_matrix_for_a_batch_has_one_rank():
    a, b = mica.tensor([[[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]]), mica.ones(4, 3, 2)
    found = linalg.lstsq(a, b, driver="gelsd")
    assert found.solution.shape == (4, 2, 2) and found.residuals.shape == (4, 2)
    assert found.rank.tolist() == [2] and found.singular_values.tolist() == [[2, 1]]
    assert linalg.lstsq(a.expand(4, -1, -1), b).rank.tolist() == [2] * 4


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("shape", [(3, 3), (40, 40), (30, 3, 3)])
def test_what_is_not_finite_ends_in_an_error_or_in_nan(bad, shape):
    a = mica.full(shape, bad, dtype=mica.float64)
    for name in ("svd", "svdvals", "pinv"):
        with pytest.raises(linalg.LinAlgError, match="failed to converge"):
            getattr(linalg, name)(a)
    assert linalg.eigh(a).eigenvalues.isnan().all() and linalg.eigvalsh(a).isnan().all()
    for name in ("eig", "eigvals"):
        with pytest.raises(RuntimeError, match="input tensor should not contain infs or NaNs"):
            getattr(linalg, name)(a)
    for function in (linalg.inv_ex, linalg.cholesky_ex, linalg.lu_factor_ex, linalg.qr, linalg.det, linalg.slogdet):
        function(a)
    linalg.lstsq(a, a)
    linalg.matrix_exp(a)


def test_wrong_input_says_what_is_wrong():
    with pytest.raises(
        RuntimeError, match="linalg.inv: A must be batches of square matrices, but they are 3 by 4 matrices"
    ):
        linalg.inv(mica.ones(3, 4))
    with pytest.raises(RuntimeError, match="linalg.cholesky: The input tensor A must have at least 2 dimensions."):
        linalg.cholesky(mica.ones(3))
    with pytest.raises(
        RuntimeError, match="linalg.svd: Expected a floating point or complex tensor as input. Got Long"
    ):
        linalg.svd(mica.ones(3, 3, dtype=mica.int64))
    with pytest.raises(NotImplementedError, match="\"linalg_eigh_cpu\" not implemented for 'Half'"):
        linalg.eigh(mica.ones(3, 3).half())
    with pytest.raises(RuntimeError, match="qr received unrecognized mode 'some'"):
        linalg.qr(mica.ones(3, 3), "some")
    with pytest.raises(RuntimeError, match="Expected UPLO argument to be 'L' or 'U', but got X"):
        linalg.eigh(mica.eye(3), "X")
    with pytest.raises(RuntimeError, match=r"linalg.solve: Incompatible shapes of A and B for the equation AX = B"):
        linalg.solve(mica.eye(3), mica.ones(4, 2))
    lu, pivots = linalg.lu_factor(mica.eye(3))
    for wrong in (pivots * 0, pivots * 100, -pivots):
        with pytest.raises(RuntimeError, match="Pivots given to lu_solve must all be (greater|smaller) or equal to"):
            linalg.lu_solve(lu, wrong, mica.ones(3, 1))
        with pytest.raises(RuntimeError, match="must be between 1 and LU.size"):
            mica.lu_unpack(lu, wrong)


GRADIENTS = {
    "cholesky": lambda a: linalg.cholesky(a @ a.mH + mica.eye(a.size(-1), dtype=a.dtype)),
    "cholesky_upper": lambda a: linalg.cholesky(a @ a.mH + mica.eye(a.size(-1), dtype=a.dtype), upper=True),
    "inv": linalg.inv,
    "det": linalg.det,
    "slogdet": lambda a: linalg.slogdet(a)[1],
    "logdet": lambda a: mica.logdet(a @ a.mH),
    "lu": lambda a: linalg.lu(a)[1:],
    "lu_factor": lambda a: linalg.lu_factor(a)[0],
    "qr": lambda a: tuple(linalg.qr(a)),
    "svdvals": linalg.svdvals,
    "svd": lambda a: ((r := linalg.svd(a, full_matrices=False)).U.abs(), r.S, r.Vh.abs()),
    "eigvalsh": lambda a: linalg.eigvalsh(a + a.mH),
    "eigh": lambda a: linalg.eigh(a + a.mH)[1].abs(),
    "eigvals": lambda a: linalg.eigvals(a).abs().sum(-1),
    "eig": lambda a: linalg.eig(a)[1].abs(),
    "pinv": linalg.pinv,
    "matrix_exp": linalg.matrix_exp,
    "cholesky_inverse": lambda a: mica.cholesky_inverse(a.tril(-1) + 3 * mica.eye(a.size(-1), dtype=a.dtype)),
    "cond": linalg.cond,
    "nuclear": lambda a: linalg.matrix_norm(a, "nuc"),
}


@pytest.mark.parametrize("of", (mica.float64, mica.complex128), ids=str)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name, of):
    for shape in ((3, 3), (2, 2, 2)):
        a = make(*shape, dtype=of, seed=5).requires_grad_()
        assert gradcheck(GRADIENTS[name], (a,))
        assert gradgradcheck(GRADIENTS[name], (a,))


@pytest.mark.parametrize("of", (mica.float64, mica.complex128), ids=str)
@pytest.mark.parametrize("shape", [(4, 2), (2, 4)])
def test_gradients_of_rectangles(shape, of):
    a = make(*shape, dtype=of, seed=5).requires_grad_()
    for name in ("lu", "lu_factor", "qr", "svdvals", "svd", "pinv"):
        assert gradcheck(GRADIENTS[name], (a,)), name
        assert gradgradcheck(GRADIENTS[name], (a,)), name


@pytest.mark.parametrize("of", (mica.float64, mica.complex128), ids=str)
def test_gradients_of_two_inputs(of):
    a = make(3, 3, dtype=of).requires_grad_()
    b = make(3, 2, dtype=of, seed=1).requires_grad_()
    tall, right = make(4, 2, dtype=of).requires_grad_(), make(4, 3, dtype=of, seed=2).requires_grad_()
    tau = make(2, dtype=of, seed=4).requires_grad_()
    cases = [
        (linalg.solve, (a, b)),
        (lambda a, b: linalg.solve(a, b[:, 0]), (a, b)),
        (lambda a, b: linalg.solve(a, b.mT, left=False), (a, b)),
        (lambda a, b: linalg.solve_triangular(a, b, upper=True), (a, b)),
        (lambda a, b: linalg.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True), (a, b)),
        (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), (a, b)),
        (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b.mT, left=False, adjoint=True), (a, b)),
        (lambda a, b: mica.cholesky_solve(b, a.tril(-1) + 3 * mica.eye(3, dtype=of)), (a, b)),
        (lambda a, b: linalg.lstsq(a, b).solution, (tall, right)),
        (lambda a, b: linalg.lstsq(a, b, driver="gelsd").residuals, (tall, right)),
        (linalg.householder_product, (tall, tau)),
        (lambda a, t, c: mica.ormqr(a, t, c), (tall, tau, right)),
        (lambda a, t, c: mica.ormqr(a, t, c.mT, left=False, transpose=True), (tall, tau, right)),
    ]
    for function, inputs in cases:
        assert gradcheck(function, inputs)
        assert gradgradcheck(function, inputs)


def test_the_gradient_of_a_singular_determinant():
    a = mica.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=mica.float64, requires_grad=True)
    (gradient,) = mica.autograd.grad(linalg.det(a), a)
    mica.testing.assert_close(gradient, mica.tensor([[4.0, -2.0], [-2.0, 1.0]], dtype=mica.float64))


def test_views_and_conjugates_are_taken_as_they_are(dtype):
    a = make(6, 4, 4, dtype=dtype)[::2].mT
    close(linalg.inv(a), linalg.inv(a.contiguous()))
    close(linalg.inv(a.mH), linalg.inv(a.mH.contiguous().resolve_conj()))
    wide = make(1, 4, 4, dtype=dtype).expand(3, 4, 4)
    close(linalg.solve(wide, a), linalg.solve(wide.contiguous(), a))


def test_rank_deficient_small_matrices_have_orthogonal_factors():
    a = mica.ones(16, 4, 4, dtype=mica.float64)
    a[3] = 0
    a[5] = mica.outer(mica.arange(4.0), mica.arange(4.0)).double() * 1e-200
    u, s, vh = linalg.svd(a)
    one = mica.eye(4, dtype=mica.float64).expand(a.shape)
    close(u.mT @ u, one)
    close(vh @ vh.mT, one)
    close((u * s.unsqueeze(-2)) @ vh, a)
    assert s[5, 0] > 1e-200 and linalg.matrix_rank(a).tolist() == [1, 1, 1, 0] + [1] * 12


def test_old_names():
    a = definite(4, 4)
    lu, pivots = mica.lu(a)
    close(mica.lu_solve(a, lu, pivots), mica.eye(4, dtype=mica.float64))
    u, s, v = mica.svd(a)
    close((u * s) @ v.mT, a)
    close(a.inverse() @ a, mica.eye(4, dtype=mica.float64))
    close(a.det().log(), a.logdet())
    packed, tau = mica.geqrf(a)
    close(mica.orgqr(packed, tau) @ packed.triu(), a)
    close(mica.ormqr(packed, tau, packed.triu()), a)
    x, _ = mica.triangular_solve(a, a.tril(), upper=False)
    close(a.tril() @ x, a)
    close(a.matrix_exp(), linalg.matrix_exp(a))
    with pytest.raises(RuntimeError, match="keyword argument `driver=` is only supported on CUDA"):
        linalg.svd(a, driver="gesvd")


def test_exponentials_of_every_norm(dtype):
    for norm in (0.0, 1e-6, 0.1, 1.0, 1.39, 1.41, 1.45, 1.47, 3.0, 20.0):  # halved from 1.4 or 1.46 on
        a = make(3, 12, 12, dtype=dtype)
        a = a + a.mH
        a = a * (norm / a.abs().sum(-2).amax(-1))[:, None, None]
        values, vectors = linalg.eigh(a)
        size = values.max().exp()
        close(linalg.matrix_exp(a) / size, (vectors * (values.exp() / size)[:, None, :].to(dtype)) @ vectors.mH)
        upper = a.triu(1)  # its series ends with the eleventh power
        series, term = mica.eye(12, dtype=dtype).expand(3, 12, 12), mica.eye(12, dtype=dtype).expand(3, 12, 12)
        for k in range(1, 12):
            term = term @ upper / k
            series = series + term
        close(linalg.matrix_exp(upper), series)


def test_low_rank():
    mica.manual_seed(3)
    a = make(30, 4) @ make(4, 20, seed=1)
    u, s, v = mica.svd_lowrank(a, q=4)
    close((u * s) @ v.mT, a)
    u, s, v = mica.pca_lowrank(a, q=4)
    close((u * s) @ v.mT, a - a.mean(0))
    big = definite(40, 40)
    values, vectors = mica.lobpcg(big, k=3)
    mica.testing.assert_close(values, linalg.eigvalsh(big).flip(-1)[:3], rtol=1e-6, atol=1e-6)
    mica.testing.assert_close(big @ vectors, vectors * values, rtol=1e-4, atol=1e-4)
    values, _ = mica.lobpcg(big, k=2, B=definite(40, 40) + mica.eye(40), largest=False)
    assert values[0] <= values[1]


def test_norms_of_empty_matrices():
    inf = float("inf")
    for shape in ((0, 0), (0, 3), (3, 0)):
        empty = mica.empty(shape)
        for order in (2, "nuc", "fro"):
            assert linalg.matrix_norm(empty, order).item() == linalg.norm(empty, order).item() == 0.0
        with pytest.raises(IndexError, match=r"amin\(\): Expected reduction dim"):
            linalg.norm(empty, -2)
    assert linalg.norm(mica.empty(0, 3), inf).item() == linalg.norm(mica.empty(3, 0), inf).item() == 0.0
    assert linalg.norm(mica.empty(3, 0), 1).item() == linalg.norm(mica.empty(0, 3), 1).item() == 0.0
    assert linalg.matrix_norm(mica.empty(2, 0, 3), inf).tolist() == [0.0, 0.0]
    assert linalg.matrix_norm(mica.empty(2, 0, 3), inf, keepdim=True).shape == (2, 1, 1)
    with pytest.raises(IndexError, match="Expected reduction dim"):
        linalg.norm(mica.empty(0, 3), -inf)
    with pytest.raises(RuntimeError, match="cannot compute the -1 norm on an empty tensor"):
        linalg.vector_norm(mica.empty(0), -1)


def test_opening_the_library_starts_no_threads():
    """OpenBLAS would start one for each processor of the machine, each with 40 MB of its own."""
    program = """
import os, mica
mica.set_num_threads(1)
cores, before = os.sched_getaffinity(0), len(os.listdir("/proc/self/task"))
mica.linalg.eigh(mica.eye(40))
assert "openblas" not in open("/proc/self/maps").read() or len(os.listdir("/proc/self/task")) == before
assert os.sched_getaffinity(0) == cores
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_qr_of_real_matrices_and_orthogonal_weights_need_no_library():
    program = """
import mica
for sizes in ((5, 3), (3, 5), (4, 4), (1, 1), (3, 7, 6), (70, 40)):
    for dtype in (mica.float32, mica.float64):
        a = mica.randn(sizes, dtype=dtype)
        q, r = mica.linalg.qr(a)
        mica.testing.assert_close(q @ r, a, rtol=1e-4, atol=1e-4)
        mica.testing.assert_close(q.mT @ q, mica.eye(q.shape[-1], dtype=dtype).expand(q.mT.shape[:-2] + (q.shape[-1],) * 2))
assert (mica.linalg.qr(mica.zeros(3, 2))[1] == 0).all()
weight = mica.nn.init.orthogonal_(mica.empty(6, 4))
mica.testing.assert_close(weight.T @ weight, mica.eye(4))
try:
    mica.linalg.qr(mica.full((3, 2), 1e30))  # their squares overflow: the library takes such numbers
    raise SystemExit("no error")
except RuntimeError as error:
    assert "needs a LAPACK library" in str(error)
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "MICA_LAPACK": "/none"})


@pytest.mark.parametrize("sizes", [(3, 3), (2, 3, 3), (2, 1, 3, 3)])
@pytest.mark.parametrize("scale", [1e-3, 0.1, 3.0])
def test_exponentials_of_matrices_of_any_norm_are_no_views(sizes, scale):
    x = (mica.randn(sizes, dtype=mica.float64) * scale).requires_grad_()
    y = linalg.matrix_exp(x)
    assert not y._is_view() and y.grad_fn is not None
    y.view(-1).add_(1)  # a view of the result, changed in place, is a part of the graph
    y.sum().backward()
    assert x.grad.isfinite().all()
    assert gradcheck(linalg.matrix_exp, (x,))


@pytest.mark.parametrize("pivots", [[-1, 2, 3], [1, 2, -3], [1, -2, 3], [-1, -1, -1], [0, 2, 3], [1, 2, 4], [1, 2, -4]])
def test_pivots_that_no_ldl_factor_gives_are_refused(pivots):
    """LAPACK would exchange rows beyond the matrix."""
    b = mica.ones(3, 2)
    with pytest.raises(RuntimeError, match="pivots must be those of ldl_factor"):
        linalg.ldl_solve(mica.eye(3), mica.tensor(pivots, dtype=mica.int32), b)
    assert mica.equal(linalg.ldl_solve(mica.eye(3), mica.tensor([1, 2, 3], dtype=mica.int32), b), b)


def test_the_power_zero_depends_on_the_matrix():
    """Its derivative is zero, as in torch."""
    x = mica.randn(2, 3, 3, requires_grad=True)
    power = linalg.matrix_power(x, 0)
    assert power.is_contiguous() and mica.equal(power, mica.eye(3).expand(2, 3, 3))
    power.sum().backward()
    assert x.grad.count_nonzero() == 0
    assert linalg.matrix_power(mica.full((2, 2), mica.inf), 0).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("count", [8, 16, 37])
def test_exchanged_rows_of_many_small_matrices(dtype, n, count):
    # Every matrix has another order of rows, so that exchanges differ between the lanes of a vector.
    orders = mica.stack([mica.randperm(n) for _ in range(count)])
    a = (make(count, n, n, dtype=dtype) + 4 * n * mica.eye(n, dtype=dtype)).gather(
        1, orders[:, :, None].expand(count, n, n)
    )
    factors, pivots, info = linalg.lu_factor_ex(a)
    single = [linalg.lu_factor_ex(matrix) for matrix in a]
    assert pivots.tolist() == [one[1].tolist() for one in single]
    assert info.tolist() == [0] * count
    close(factors, mica.stack([one[0] for one in single]))
    close(linalg.det(a), mica.stack([linalg.det(matrix) for matrix in a]))
    a[1, :, 0] = 0
    assert linalg.lu_factor_ex(a).info.tolist() == [0, 1] + [0] * (count - 2)
    assert linalg.inv_ex(a).info.tolist() == [0, 1] + [0] * (count - 2)
