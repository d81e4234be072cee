"""Derivatives forwards: jvp, jacfwd, linearize, and tensors that carry a tangent."""

import mica
import mica.autograd.forward_ad as fwd
import pytest
from mica.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap


def f(v):
    return (v.sin() * v.sum()).cumsum(0)[:3] @ mica.arange(12.0, dtype=v.dtype).view(3, 4)


def test_products_of_the_jacobian():
    x, t = mica.randn(5, dtype=mica.float64), mica.randn(5, dtype=mica.float64)
    jacobian = jacrev(f)(x)
    value, tangent = jvp(f, (x,), (t,))
    mica.testing.assert_close(value, f(x))
    mica.testing.assert_close(tangent, jacobian @ t)
    mica.testing.assert_close(jacfwd(f)(x), jacobian)
    assert not value.requires_grad and not tangent.requires_grad
    value, product = linearize(f, x)
    mica.testing.assert_close(value, f(x))
    for _ in range(2):
        mica.testing.assert_close(product(t), jacobian @ t)


def test_nests_and_auxiliaries():
    x, y = mica.randn(3), mica.randn(3)
    value, tangent, aux = jvp(lambda a, b: ({"s": a * b, "n": a.sum()}, a + 1), (x, y), (y, x), has_aux=True)
    mica.testing.assert_close(aux, x + 1)
    mica.testing.assert_close(tangent, {"s": y * y + x * x, "n": y.sum()})
    mica.testing.assert_close(value["s"], x * y)
    constant = jvp(lambda a: mica.ones(2), (x,), (y,))
    mica.testing.assert_close(constant, (mica.ones(2), mica.zeros(2)))
    both = jacfwd(lambda a, b: (a * b, a), argnums=(0, 1))(x, y)
    mica.testing.assert_close(both, ((mica.diag(y), mica.diag(x)), (mica.eye(3), mica.zeros(3, 3))))


def test_compositions():
    x, t = mica.randn(3, dtype=mica.float64), mica.randn(3, dtype=mica.float64)
    h = lambda v: (v**3).sum() * v[0]  # noqa: E731
    expected = jacrev(jacrev(h))(x)
    for second in (hessian(h), jacfwd(jacfwd(h)), jacrev(jacfwd(h)), jacfwd(grad(h)), jacrev(grad(h))):
        mica.testing.assert_close(second(x), expected)
    mica.testing.assert_close(jvp(grad(h), (x,), (t,))[1], expected @ t)
    mica.testing.assert_close(grad(lambda v: jvp(h, (v,), (t,))[1])(x), expected @ t)
    mica.testing.assert_close(jvp(lambda v: jvp(h, (v,), (t,))[1], (x,), (t,))[1], t @ expected @ t)
    mica.testing.assert_close(
        vjp(lambda v: jvp(h, (v,), (t,))[1], x)[1](mica.tensor(1.0, dtype=x.dtype))[0], expected @ t
    )
    xs = mica.stack([x, t])
    mica.testing.assert_close(vmap(hessian(h))(xs)[0], expected)
    mica.testing.assert_close(vmap(lambda a, b: jvp(h, (a,), (b,))[1])(xs, xs.flip(0))[0], grad(h)(x) @ t)
    third = jacfwd(hessian(h))(x)
    assert third.shape == (3, 3, 3)
    mica.testing.assert_close(third, third.permute(2, 0, 1))


def test_jacobians_in_chunks_and_by_value():
    x = mica.randn(4)
    calls = []

    def counted(v):
        calls.append(1)
        return v.sin()

    mica.testing.assert_close(jacrev(counted, chunk_size=3)(x), mica.diag(x.cos()))
    assert len(calls) == 1 + 2
    mica.testing.assert_close(
        jacrev(lambda v: v * 2 if v.sum().item() > 0 else v * 3)(x).diag()[0].item() in (2, 3), True
    )
    mica.manual_seed(3)
    noisy = jacrev(lambda v: v * mica.rand(4))(x)
    mica.manual_seed(3)
    mica.testing.assert_close(noisy, mica.diag(mica.rand(4)))
    with pytest.raises(ValueError, match="`chunk_size` should be greater than 0"):
        jacrev(f, chunk_size=0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: jvp(f, x, x), "Expected primals to be a tuple"),
        (lambda x: jvp(f, (x,), (x, x)), "Expected primals and tangents to have the same python structure"),
        (lambda x: jvp(f, (x,), (x[:2],)), "Expected tensor `tangent` to have the same shape as `primal`"),
        (lambda x: jvp(f, (1.0,), (1.0,)), "Expected primals to only contain Tensors"),
        (lambda x: jacfwd(lambda v: 3)(x), r"expected f\(\*primals\) to return only tensors"),
        (lambda x: functionalize(f, remove="all"), "received invalid argument for remove=all"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(RuntimeError, match=words):
        call(mica.randn(5))


def test_functionalize_changes_nothing_to_see():
    def change(x):
        x[0].add_(1)
        return x * 2

    a, b = mica.zeros(2, 2), mica.zeros(2, 2)
    assert mica.equal(functionalize(change)(a), change(b))
    assert mica.equal(a, b)


# ------------------------------------------------------------------------------------------------ dual tensors
def test_dual_tensors():
    x, t = mica.randn(3), mica.randn(3)
    with fwd.dual_level():
        dual = fwd.make_dual(x, t)
        assert dual.data_ptr() == x.data_ptr()
        primal, tangent = fwd.unpack_dual(dual.sin() * dual)
        mica.testing.assert_close(primal, x.sin() * x)
        mica.testing.assert_close(tangent, (x.cos() * x + x.sin()) * t)
        mica.testing.assert_close(fwd.unpack_dual(dual).tangent, t)
        assert fwd.unpack_dual(x).tangent is None
        assert fwd.unpack_dual(x.clone().requires_grad_() * 2).tangent is None
        other = fwd.make_dual(t, x)
        mica.testing.assert_close(fwd.unpack_dual(dual * other).tangent, t * t + x * x)
        views = fwd.unpack_dual(dual.view(3, 1).expand(3, 2)[1:])
        mica.testing.assert_close(views.tangent, t.view(3, 1).expand(3, 2)[1:])
    assert fwd.unpack_dual(dual).tangent is None
    assert not x.requires_grad and mica.is_grad_enabled()


def test_tangents_pass_no_grad():
    x, t = mica.randn(3), mica.randn(3)
    with mica.no_grad(), fwd.dual_level():
        dual = fwd.make_dual(x, t)
        with mica.no_grad():
            y = dual.exp()
        mica.testing.assert_close(fwd.unpack_dual(y).tangent, x.exp() * t)
    with mica.no_grad():
        assert not (x.requires_grad_() * 2).requires_grad
    assert (x * 2).requires_grad


def test_forwards_over_backwards():
    x, t = mica.randn(3, requires_grad=True), mica.randn(3)
    with fwd.dual_level():
        dual = fwd.make_dual(x, t)
        (slope,) = mica.autograd.grad((dual**3).sum(), dual, create_graph=True)
        mica.testing.assert_close(fwd.unpack_dual(slope).tangent, 6 * x * t)
        tangent = fwd.unpack_dual(dual**3).tangent
    (back,) = mica.autograd.grad(tangent.sum(), x)
    mica.testing.assert_close(back, 6 * x.detach() * t)


def test_a_module_along_a_direction():
    model = mica.nn.Linear(3, 2)
    x = mica.randn(4, 3)
    directions = {name: mica.randn_like(p) for name, p in model.named_parameters()}
    with fwd.dual_level():
        for name, p in list(model.named_parameters()):
            delattr(model, name)
            setattr(model, name, fwd.make_dual(p, directions[name]))
        tangent = fwd.unpack_dual(model(x)).tangent
    mica.testing.assert_close(tangent, x @ directions["weight"].T + directions["bias"])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: fwd.make_dual(x, x), RuntimeError, "no level exists, make sure to enter_dual_level"),
        (lambda x: fwd.exit_dual_level(), RuntimeError, "Trying to exit a forward AD level"),
    ],
)
def test_refused_outside(call, error, words):
    with pytest.raises(error, match=words):
        call(mica.randn(3))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: fwd.make_dual(x.long(), x), ValueError, "Expected primal to be floating point or complex"),
        (lambda x: fwd.make_dual(x, x.long()), ValueError, "Expected tangent to be floating point or complex"),
        (lambda x: fwd.make_dual(x, x[:2]), RuntimeError, "different size than that of the original Tensor"),
        (lambda x: fwd.enter_dual_level(), RuntimeError, "Nested forward mode AD is not supported"),
    ],
)
def test_refused_inside(call, error, words):
    with fwd.dual_level(), pytest.raises(error, match=words):
        call(mica.randn(3))


def test_gradcheck_forwards():
    x = mica.randn(3, 4, dtype=mica.float64, requires_grad=True)
    z = mica.randn(3, dtype=mica.complex128, requires_grad=True)
    assert mica.autograd.gradcheck(lambda v: (v.sin(), v @ v.T), x, check_forward_ad=True)
    assert mica.autograd.gradcheck(lambda v: (v * v.conj()).real, z, check_forward_ad=True, check_backward_ad=False)

    class Wrong(mica.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return v * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    with pytest.raises(
        mica.autograd.gradcheck.__globals__["GradcheckError"], match="computed with forward mode mismatch"
    ):
        mica.autograd.gradcheck(Wrong.apply, x, check_forward_ad=True, check_backward_ad=False)


def test_dual_tensors_can_be_changed_in_place():
    primal, tangent = mica.tensor([1.0, 2.0]), mica.tensor([1.0, 0.0])
    with fwd.dual_level():
        x = fwd.make_dual(primal, tangent)
        x.mul_(3)
        assert fwd.unpack_dual(x).tangent.tolist() == [3, 0]
        y = mica.zeros(2).copy_(x)
        y[1] = x[0] * x[0]
        assert fwd.unpack_dual(y).tangent.tolist() == [3, 18]
    assert primal.tolist() == [3, 6] and not primal.requires_grad


def test_changes_of_a_dual_tensor_are_counted():
    """Its memory is that of the tensor it was made from, so that what a graph has saved of either is known to be changed."""
    x, t, weight = mica.rand(2), mica.ones(2), mica.rand(2, requires_grad=True)
    saved = (x * weight).sum()
    with fwd.dual_level():
        dual = fwd.make_dual(x, t)
        assert dual._version == x._version == 0
        x.add_(1)
        assert dual._version == x._version == 1 and fwd.unpack_dual(dual).primal._version == 1
        dual.mul_(2)
        assert dual._version == x._version == 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()
    saved = (x * weight).sum()
    with fwd.dual_level():
        fwd.make_dual(x, t)
    saved.backward()
    with mica.inference_mode(), fwd.dual_level():
        assert fwd.make_dual(mica.ones(2), t).tolist() == [1.0, 1.0]
