"""torch.func: vmap, gradients as functions, Jacobians, modules called with other parameters."""

import mica
import pytest
from mica import func, nn
from mica.func import functional_call, grad, grad_and_value, hessian, jacrev, stack_module_state, vjp, vmap


def test_vmap_is_the_loop():
    a, b = mica.randn(3, 4), mica.randn(3, 4)
    mica.testing.assert_close(vmap(mica.dot)(a, b), (a * b).sum(1))
    mica.testing.assert_close(vmap(mica.dot, in_dims=(1, 1))(a.t(), b.t()), (a * b).sum(1))
    mica.testing.assert_close(vmap(lambda x, y: x * y, in_dims=(0, None))(a, b[0]), a * b[0])
    assert vmap(lambda x: x, out_dims=1)(a).shape == (4, 3)


def test_vmap_of_nests():
    data = {"x": mica.randn(5, 2), "y": (mica.randn(5), 3)}
    out = vmap(lambda d: {"s": d["x"].sum() * d["y"][0] + d["y"][1]}, in_dims=({"x": 0, "y": (0, None)},))(data)
    mica.testing.assert_close(out["s"], data["x"].sum(1) * data["y"][0] + 3)


def test_vmap_nested_and_differentiable():
    x = mica.randn(3, 4, requires_grad=True)
    out = vmap(vmap(lambda v: v * v))(x)
    out.sum().backward()
    mica.testing.assert_close(x.grad, 2 * x.detach())


def test_vmap_of_nobody():
    assert vmap(lambda x: x.sum(-1))(mica.ones(0, 3, 2)).shape == (0, 3)


def test_vmap_and_randomness():
    x = mica.zeros(4, 3)
    with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
        vmap(lambda v: v + mica.randn(3))(x)
    same = vmap(lambda v: v + mica.randn(3), randomness="same")(x)
    assert mica.equal(same[0], same[3])
    different = vmap(lambda v: v + mica.randn(3), randomness="different")(x)
    assert not mica.equal(different[0], different[3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: vmap(mica.dot)(a, a[:2]), "Expected all tensors to have the same size in the mapped dimension"),
        (lambda a: vmap(mica.dot, in_dims=(0,))(a, a), "in_dims is not compatible with the structure of `inputs`"),
        (lambda a: vmap(mica.dot, in_dims=(5, 0))(a, a), "Got in_dim=5 for some input"),
        (lambda a: vmap(mica.dot, in_dims="a")(a, a), "expected `in_dims` to be int or a"),
        (lambda a: vmap(lambda x: 3)(a), "must only return Tensors"),
        (lambda a: vmap(lambda x: x)(3), "cannot vmap over non-Tensor arguments"),
        (lambda a: vmap(lambda: a)(), "got no inputs"),
        (lambda a: vmap(lambda x: (x, x), out_dims=(0, 1, 2))(a), "out_dims is not compatible"),
        (lambda a: vmap(lambda x: x, chunk_size=0), "chunk_size should be None or greater than 0"),
    ],
)
def test_vmap_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call(mica.randn(3, 4))


def test_gradients_as_functions():
    x = mica.randn(4)
    mica.testing.assert_close(grad(lambda v: (v**3).sum())(x), 3 * x**2)
    slope, value = grad_and_value(lambda v: (v**3).sum())(x)
    mica.testing.assert_close(value, (x**3).sum())
    mica.testing.assert_close(grad(grad(lambda v: v**3))(x[0]), 6 * x[0])
    gradient, aux = grad(lambda v: (v.sum(), v * 2), has_aux=True)(x)
    mica.testing.assert_close((gradient, aux), (mica.ones(4), x * 2))
    assert slope.shape == x.shape
    assert x.grad is None
    with pytest.raises(RuntimeError, match="return a scalar Tensor, got tensor with 1 dims"):
        grad(lambda v: v * 2)(x)


def test_jacobians_and_products():
    x = mica.randn(3)
    mica.testing.assert_close(jacrev(lambda v: v**2)(x), mica.diag(2 * x))
    mica.testing.assert_close(hessian(lambda v: (v**3).sum())(x), mica.diag(6 * x))
    value, product = vjp(lambda v: v * v, x)
    mica.testing.assert_close(product(mica.ones(3))[0].detach(), 2 * x)
    mica.testing.assert_close(value.detach(), x * x)


def test_modules_with_other_parameters():
    model = nn.Linear(2, 3)
    zeros = {name: mica.zeros_like(p) for name, p in model.named_parameters()}
    assert mica.equal(functional_call(model, zeros, (mica.ones(1, 2),)), mica.zeros(1, 3))
    assert not mica.equal(model.weight, mica.zeros(3, 2))
    models = [nn.Linear(2, 3) for _ in range(4)]
    parameters, _ = stack_module_state(models)
    x = mica.randn(5, 2)
    out = vmap(lambda p: functional_call(model, p, (x,)))(parameters)
    mica.testing.assert_close(out, mica.stack([m(x) for m in models]))


def test_a_vector_product_has_a_graph_only_where_something_can_be_differentiated():
    from mica.func import grad, vjp

    x = mica.tensor([1.0, 2.0])
    _, product = vjp(lambda y: y**3, x)
    assert not product(mica.ones(2))[0].requires_grad
    assert product(mica.ones(2, requires_grad=True))[0].requires_grad
    assert grad(lambda y: vjp(lambda z: z**3, y)[1](mica.ones(2))[0].sum())(x).tolist() == [6.0, 12.0]


def test_derivatives_have_a_history_where_the_function_depends_on_more_than_its_arguments():
    w, x = mica.tensor(2.0, requires_grad=True), mica.tensor(3.0)

    def f(x):
        return w * x * x

    def by_w(value):
        return mica.autograd.grad(value, w, retain_graph=True)[0].item()

    one = mica.tensor(1.0)
    gradient, value = func.grad_and_value(f)(x)
    assert (by_w(gradient), by_w(value)) == (6, 9)
    value, tangent = func.jvp(f, (x,), (one,))
    assert (by_w(value), by_w(tangent)) == (9, 6)
    value, pull = func.vjp(f, x)
    assert (by_w(value), by_w(pull(one)[0])) == (9, 6)
    value, push = func.linearize(f, x)
    assert (by_w(value), by_w(push(one))) == (9, 6)
    assert [by_w(j(f)(x)) for j in (func.jacrev, func.jacfwd, func.hessian)] == [6, 6, 2]
    assert by_w(func.vmap(func.grad(f))(mica.tensor([1.0, 2.0])).sum()) == 6
    assert by_w(func.jacrev(lambda v: w * v * v)(mica.tensor([1.0, 2.0])).sum()) == 6
    with mica.autograd.forward_ad.dual_level():
        dual = mica.autograd.forward_ad.make_dual(x, one)
        value, tangent = mica.autograd.forward_ad.unpack_dual(f(dual))
        assert (by_w(value), by_w(tangent)) == (9, 6)
        with mica.no_grad():
            value, tangent = mica.autograd.forward_ad.unpack_dual(f(dual))
            assert tangent.item() == 12 and not value.requires_grad and not tangent.requires_grad
    with mica.no_grad():
        assert not func.grad(f)(x).requires_grad
    alone = func.vjp(lambda x: x * x, x)
    assert not alone[0].requires_grad and not alone[1](one)[0].requires_grad


def test_forwards_functions_may_change_their_inputs_in_place():
    """As in torch 2.13: the change is part of the function, and the caller sees it."""
    x, y = mica.tensor([1.0, 2.0]), mica.tensor([3.0, 4.0])

    def copied(x, y):
        x.copy_(y)
        return x

    value, tangent = mica.func.jvp(copied, (x, y), (mica.tensor([5.0, 6.0]), mica.tensor([7.0, 8.0])))
    assert value.tolist() == [3, 4] and tangent.tolist() == [7, 8] and x.tolist() == [3, 4]
    rows = [mica.arange(4.0).view(2, 2) * (i + 1) for i in range(4)]
    value, tangent = mica.func.vmap(lambda x, y, s, t: mica.func.jvp(copied, (x, y), (s, t)))(*rows)
    assert value.tolist() == [[0, 2], [4, 6]] and tangent.tolist() == [[0, 4], [8, 12]]
    for function in (mica.func.grad, jacrev):
        with pytest.raises(
            RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"
        ):
            function(lambda x: x.mul_(2).sum())(mica.ones(2))
    assert jacrev(lambda x: mica.zeros(2).copy_(x))(mica.ones(2)).tolist() == [[1, 0], [0, 1]]


def test_a_function_that_changes_something_runs_once():
    counts = mica.zeros(2)
    assert jacrev(lambda x, c: x * c.add_(1))(mica.ones(2), counts).tolist() == [[1, 0], [0, 1]]
    assert counts.tolist() == [1, 1]


@pytest.mark.parametrize(
    "f", [vmap(mica.sin), vmap(grad(mica.sin)), vmap(lambda x: x * mica.ones(2).sum()), jacrev(mica.sin)]
)
def test_graphs_of_examples(f):
    from mica.fx.experimental.proxy_tensor import make_fx

    x = mica.linspace(-1, 1, 3)
    graph = make_fx(f)(x)
    assert any(node.op == "call_function" for node in graph.graph.nodes)
    mica.testing.assert_close(graph(x + 0.5), f(x + 0.5))


def test_vjp_without_arguments():
    value, product = func.vjp(lambda: mica.ones(2))
    assert value.tolist() == [1.0, 1.0] and product(mica.ones(2)) == ()
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        func.vjp(lambda x: x)
