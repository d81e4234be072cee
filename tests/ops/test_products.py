"""Products against NumPy: shapes, strides, dtypes, broadcasting, einsum's notation, errors."""

import mica
import numpy as np
import pytest

rng = np.random.default_rng(0)


def both(*shape, dtype=np.float64):
    a = rng.standard_normal(shape).astype(dtype)
    return a, mica.from_numpy(a)


def assert_equal(ours, theirs, rtol=1e-12):
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=rtol, atol=rtol)


SHAPES = [
    ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)), ((1, 3, 4), (2, 4, 5)), ((6, 1, 3, 4), (2, 4, 5)), ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((2, 0, 4), (4, 3)),
]  # fmt: skip


@pytest.mark.parametrize("left,right", SHAPES)
def test_matmul_broadcasts_as_numpy(left, right):
    (a, x), (b, y) = both(*left), both(*right)
    assert_equal(x @ y, a @ b)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 16, 17, 31, 64, 65, 130])
def test_mm_of_every_size_and_transposition(n):
    (a, x), (b, y) = both(n, n + 3), both(n + 3, n + 1)
    assert_equal(x @ y, a @ b)
    assert_equal(y.t() @ x.t(), b.T @ a.T)
    assert_equal(x[::-1] @ y[:, ::-1], a[::-1] @ b[:, ::-1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 7, 31, 32, 33, 35, 63, 255, 256, 257, 259, 511, 515, 1027])
def test_floats_of_every_depth(dtype, depth):
    """Small whole numbers, whose sums are exact: rows, columns and depths that are no multiple of a tile's."""
    a = rng.integers(-8, 9, (99, depth)).astype(dtype)
    b = rng.integers(-8, 9, (depth, 141)).astype(dtype)
    c = rng.integers(-8, 9, (99, 141)).astype(dtype)
    x, y, z = (mica.from_numpy(t) for t in (a, b, c))
    turned_x, turned_y = (mica.from_numpy(np.ascontiguousarray(t.T)).t() for t in (a, b))
    for left in (x, turned_x):
        for right in (y, turned_y):
            np.testing.assert_array_equal((left @ right).numpy(), a @ b)
            np.testing.assert_array_equal(mica.addmm(z, left, right, beta=2, alpha=0.5).numpy(), 2 * c + (a @ b) / 2)
            np.testing.assert_array_equal(mica.addmm(z[0], left, right).numpy(), c[0] + a @ b)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int8", "int16"])
def test_integers_wrap_around(dtype):
    a = rng.integers(0, 100, (7, 9)).astype(dtype)
    b = rng.integers(0, 100, (9, 4)).astype(dtype)
    with np.errstate(over="ignore"):
        expected = (a.astype(np.int64) @ b.astype(np.int64)).astype(dtype)
    assert (mica.from_numpy(a) @ mica.from_numpy(b)).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [mica.bfloat16, mica.float16])
def test_half_products_round_once(dtype):
    _, x = both(33, 70)
    _, y = both(70, 41)
    x, y = x.to(dtype), y.to(dtype)
    exact = x.double() @ y.double()
    assert (x @ y).dtype == dtype
    error = ((x @ y).double() - exact).abs()
    step = exact.abs() * (2**-8 if dtype == mica.bfloat16 else 2**-11) + 1e-4
    assert bool((error <= step).all())


def test_complex():
    a = rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4))
    b = rng.standard_normal((4, 2)) + 1j * rng.standard_normal((4, 2))
    x, y = mica.from_numpy(a), mica.from_numpy(b)
    assert_equal(x @ y, a @ b)
    assert_equal((x.conj() @ y).resolve_conj(), a.conj() @ b)
    assert np.isclose(mica.vdot(x[0], x[1]).item(), np.vdot(a[0], a[1]))


def test_addmm_with_zero_beta_does_not_read_self():
    _, x = both(3, 4)
    nan = mica.full((3, 3), float("nan"), dtype=mica.float64)
    assert not mica.isnan(mica.addmm(nan, x, x.t(), beta=0)).any().item()
    assert mica.isnan(mica.addmm(nan, x, x.t())).all().item()


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ii->i", (3, 3)), ("ii", (3, 3)), ("ij->ji", (2, 3)), ("ij->", (2, 3)),
    ("bsh,bth->bst", (2, 5, 8), (2, 7, 8)), ("i,j->ij", (3,), (4,)), ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    ("...chw,c->...hw", (2, 3, 4, 5), (3,)), ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("abc,cd,bde->ae", (2, 3, 4), (4, 5), (3, 5, 6)),
    ("ij,ij->i", (3, 4), (3, 4)), ("a...,a...->...", (2, 3, 4), (2, 3, 4)), ("ijk,ik->ij", (2, 3, 4), (2, 4)), (" i j , j k -> i k ", (2, 3), (3, 4)),
]  # fmt: skip


@pytest.mark.parametrize("equation,shapes", [(e[0], e[1:]) for e in EQUATIONS])
def test_einsum(equation, shapes):
    pairs = [both(*s) for s in shapes]
    assert_equal(
        mica.einsum(equation, *[x for _, x in pairs]), np.einsum(equation.replace(" ", ""), *[a for a, _ in pairs])
    )


def test_einsum_multiplies_where_nothing_is_summed():
    a, b = mica.ones(3, 4), mica.ones(4, dtype=mica.float64)
    assert mica.einsum("ij,j->ij", a, b).dtype == mica.float64
    assert mica.einsum("ij,jk->ik", a[:, :1], b[None]).dtype == mica.float64, "the sum is over one element"
    assert mica.einsum("ij,i->j", a[:1], b[:1]).tolist() == [1, 1, 1, 1]
    with pytest.raises(RuntimeError, match="same dtype"):
        mica.einsum("ij,j->i", a, b)
    small = mica.ones(3, 1, dtype=mica.int32)
    assert mica.einsum("ij,k->ik", small, small[:, 0]).dtype == mica.int32, "no sum makes it int64"


def test_einsum_computes_in_the_order_of_the_result():
    a, b = mica.arange(12.0).reshape(3, 4), mica.arange(4.0)
    for equation in ("ij,j->ij", "ij,j->ji"):
        result = mica.einsum(equation, a, b)
        assert result.stride() == (a * b if equation == "ij,j->ij" else a.t() * b[:, None]).stride()
    assert mica.einsum("abd->ba", mica.ones(2, 4, 3)).is_contiguous()
    assert mica.einsum(",eab->be", mica.tensor(2.0), mica.ones(4, 3, 2)).is_contiguous()
    assert mica.einsum("aed,be->ae", mica.ones(1, 2, 4).permute(2, 1, 0), mica.ones(3, 2)).stride() == (1, 4)


def test_numbers_do_not_widen_a_block_diagonal():
    matrix, number = mica.ones(2, 2), mica.tensor(1.0, dtype=mica.float64)
    assert mica.block_diag(matrix, number).dtype == mica.float32
    assert mica.block_diag(matrix, number[None]).dtype == mica.float64


def test_tensordot_and_kron():
    (a, x), (b, y) = both(3, 4, 5), both(4, 3, 2)
    assert_equal(mica.tensordot(x, y, dims=([1, 0], [0, 1])), np.tensordot(a, b, axes=([1, 0], [0, 1])))
    (a, x), (b, y) = both(2, 3), both(3, 2)
    assert_equal(mica.tensordot(x, y, dims=1), np.tensordot(a, b, axes=1))
    assert_equal(mica.kron(x, y), np.kron(a, b))


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda: mica.ones(2, 3) @ mica.ones(2, 3), "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"),
        (lambda: mica.ones(2, 3) @ mica.ones(3, 2, dtype=mica.float64), "same dtype"),
        (lambda: mica.bmm(mica.ones(2, 3, 4), mica.ones(3, 4, 5)), "Expected size for first two dimensions of batch2"),
        (lambda: mica.dot(mica.ones(2), mica.ones(3)), "inconsistent tensor size"),
        (lambda: mica.einsum("ij,jk->il", mica.ones(2, 2), mica.ones(2, 2)), "does not appear"),
        (lambda: mica.einsum("i?", mica.ones(2, 2)), "subscript"),
        (lambda: mica.ones(2, 2, dtype=mica.bool) @ mica.ones(2, 2, dtype=mica.bool), "not implemented for 'Bool'"),
        (lambda: mica.tensor(1.0) @ mica.ones(2), "at least 1D"),
    ],
)
def test_errors_say_what_is_wrong(call, words):
    with pytest.raises(RuntimeError) as e:
        call()
    assert words in str(e.value)


def test_small_integers_and_bools_keep_their_dtype():
    a, v = mica.ones(2, 3, dtype=mica.int32), mica.ones(3, dtype=mica.int32)
    assert mica.tensordot(a[:, :1], a, dims=([1], [1])).dtype == mica.int32
    # A sum over an index that one operand has alone makes them int64.
    assert mica.einsum("ik,j->ij", a, v).tolist() == [[3, 3, 3], [3, 3, 3]]
    assert mica.einsum("ik,j->ij", a, v).dtype == mica.int64
    assert mica.einsum("ij,ij->", a, a).dtype == mica.int32
    assert mica.einsum("ij,jk->ik", a[:, :1], a).dtype == mica.int64
    matrix, row, column = (mica.ones(*n, dtype=mica.bool) for n in ((2, 3), (2,), (3,)))
    assert mica.addr(matrix, row, column, beta=2).dtype == mica.bool
    with pytest.raises(RuntimeError, match="For integral input tensors, argument alpha must not be a floating point"):
        mica.addr(matrix, row, column, alpha=2.0)


def test_an_ellipsis_of_very_many_dimensions():
    x = mica.ones([1] * 64)
    assert mica.einsum("...,...->...", x, x).dim() == 64
    with pytest.raises(RuntimeError, match="only ellipses of up to 64 dimensions"):
        mica.einsum("...->...", mica.ones([1] * 200))


def test_linear_into_a_tensor():
    x, weight, bias = mica.randn(2, 3, 4), mica.randn(5, 4), mica.randn(5)
    for out in (mica.empty(0), mica.empty(2, 3, 5), mica.empty(5, 3, 2).permute(2, 1, 0)):
        assert mica.nn.functional.linear(x, weight, bias, out=out) is out
        assert mica.equal(out, mica.nn.functional.linear(x, weight, bias))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        mica.nn.functional.linear(x, weight.requires_grad_(), out=mica.empty(0))


@pytest.mark.parametrize("alpha", [1, 2])
def test_a_gradient_lies_as_its_matrix_does(alpha):
    a, x = both(7, 3, dtype=np.float32)
    for matrix in (mica.randn(3, 5), mica.randn(5, 3).t()):
        matrix.requires_grad_()
        out = x @ matrix if alpha == 1 else mica.addmm(mica.ones(5), x, matrix, alpha=alpha)
        (grad,) = mica.autograd.grad(out.sum(), matrix)
        assert grad.stride() == matrix.stride()
        assert_equal(grad, alpha * np.tile(a.sum(0)[:, None], (1, 5)), 1e-5)


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4)])
def test_linear_without_bias_has_a_gradient_that_lies_as_its_weight(shape):
    x, w = mica.randn(shape, dtype=mica.float64), mica.randn(3, 4, dtype=mica.float64, requires_grad=True)
    y = mica.nn.functional.linear(x, w)
    grad = mica.randn(y.shape, dtype=mica.float64)
    (got,) = mica.autograd.grad(y, w, grad)
    assert got.stride() == w.stride()
    want = grad.reshape(-1, 3).t() @ x.reshape(-1, 4)
    mica.testing.assert_close(got, want)
    a = mica.randn(2, 4, dtype=mica.float64, requires_grad=True)
    assert mica.autograd.gradcheck(lambda a, w: mica.mm(a, w.t()), (a, w))
    assert mica.autograd.gradgradcheck(lambda a, w: mica.mm(a, w.t()), (a, w))


def test_einsum_without_sums_takes_any_two_dtypes():
    scores, mask = mica.ones(2, 3), mica.tensor([True, False])
    kept = mica.einsum("ij,i->ij", scores, mask)
    assert kept.dtype == mica.float32 and kept.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert mica.einsum("i,j->ij", mica.ones(2), mica.ones(3, dtype=mica.float64)).dtype == mica.float64
    assert mica.einsum("i,i->i", mask, ~mask).tolist() == [False, False]
    assert mica.einsum("i,->i", mica.ones(2), mica.tensor(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="same dtype"):
        mica.einsum("i,i->", mica.ones(2), mica.ones(2, dtype=mica.float64))


def test_einsum_errors_name_the_operand():
    with pytest.raises(RuntimeError, match="subscript j has size 2 for operand 1 which does not broadcast with prev"):
        mica.einsum("ij,jk", mica.ones(2, 3), mica.ones(2, 2))
    with pytest.raises(RuntimeError, match="fewer operands were provided than specified"):
        mica.einsum("i,i", mica.ones(2))
    with pytest.raises(RuntimeError, match="more operands were provided than specified"):
        mica.einsum("i", mica.ones(2), mica.ones(2))


@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3, 4), (4, 5)), ((2, 3, 4), (4,)), ((4,), (4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)),
     ((2, 1, 3, 4), (5, 4, 2))],
)  # fmt: skip
def test_products_are_no_views(left, right):
    made = mica.matmul(mica.randn(left), mica.randn(right))
    assert not made._is_view() and made._base is None
    if len(right) == 2 and len(left) == 3:
        assert not mica.nn.functional.linear(mica.randn(left), mica.randn(right).t())._is_view()


def test_a_function_may_return_a_product_that_is_changed_in_place():
    class Product(mica.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(w)
            return mica.matmul(x, w)

        @staticmethod
        def backward(ctx, grad):
            return grad @ ctx.saved_tensors[0].t(), None

    x, w = mica.ones(2, 3, 4, requires_grad=True), mica.ones(4, 5)
    made = Product.apply(x, w)
    made.add_(1)  # as a sum over processes does
    made.sum().backward()
    assert made.unique().tolist() == [5.0] and x.grad.unique().tolist() == [5.0]


@pytest.mark.parametrize("dtype", [mica.float32, mica.float64, mica.bfloat16, mica.int32])
@pytest.mark.parametrize("columns", [4, 12, 32, 64, 100, 128, 130])
def test_few_rows_with_narrow_matrices(dtype, columns):
    # Integers, so that every order of summing gives the same.
    for rows in (1, 2, 3, 5, 7):
        for depth in (1, 3, 81, 300):
            a = mica.randint(-3, 4, (rows, depth))
            b = mica.randint(-3, 4, (depth, columns))
            expected = (a[:, :, None] * b).sum(1)
            assert mica.equal(a.to(dtype) @ b.to(dtype), expected.to(dtype))
            assert mica.equal(b.t().to(dtype).contiguous() @ a.t().to(dtype), expected.t().to(dtype))


@pytest.mark.parametrize("dtype", [mica.bfloat16, mica.float16])
def test_one_row_with_a_matrix_that_is_fetched_ahead(dtype):
    mica.manual_seed(0)
    weight, x = mica.randn(303, 700).to(dtype), mica.randn(1, 700).to(dtype)
    expected = x.double() @ weight.double().t()
    error = (mica.nn.functional.linear(x, weight).double() - expected).abs().max()
    assert error < (5e-3 if dtype is mica.bfloat16 else 6e-4) * expected.abs().max()
