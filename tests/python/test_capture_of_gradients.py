"""torch.compile(backend=function) of functions that compute gradients by themselves."""

import mica as torch
import pytest
from mica import func


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


def _run(graph, inputs):  # "eager" captures no graph
    return graph.forward


weight, matrix = torch.randn(4), torch.randn(2, 4)


def _energy(x):
    return (x.sin() * weight).sum()


TRANSFORMS = {
    "grad": func.grad(_energy),
    "grad_and_value": func.grad_and_value(_energy),
    "hessian": func.hessian(_energy),
    "jacrev": func.jacrev(torch.sin),
    "jacfwd": func.jacfwd(torch.sin),
    "jvp": lambda x: func.jvp(_energy, (x,), (weight,)),
    "vjp": lambda x: func.vjp(torch.sin, x)[1](weight),
    "linearize": lambda x: func.linearize(torch.sin, x)[1](weight),
    "each": lambda x: torch.vmap(func.grad(_energy))(x.expand(3, 4)),
    "shared": lambda x: torch.vmap(func.grad(lambda m, y: (m @ y).exp().sum()), (None, 0))(matrix, x.expand(3, 4)),
    "layer": lambda x: torch.vmap(func.grad(lambda m, y: torch.nn.functional.linear(y, m).sum()), (None, 0))(
        matrix, x.expand(3, 4)
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_give_what_they_give_without_a_capture(name):
    x = torch.randn(4)
    wanted, given = TRANSFORMS[name](x), torch.compile(TRANSFORMS[name], backend=_run)(x)
    pairs = list(zip(torch.utils._pytree.tree_leaves(wanted), torch.utils._pytree.tree_leaves(given), strict=True))
    assert pairs
    for a, b in pairs:
        assert torch.equal(a, b) and a.requires_grad == b.requires_grad


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos() + torch.zeros(4)


def _accumulated(x):
    y = Sine.apply(x * weight)
    y.register_hook(lambda grad: grad * 2 + torch.ones(4))
    y.square().sum().backward()
    return x.grad * 3


def _asked(x):
    return torch.autograd.grad(Sine.apply(x * weight).square().sum(), x, create_graph=True)[0]


@pytest.mark.parametrize("function", [_accumulated, _asked])
def test_custom_functions_and_hooks_of_a_backward_pass_get_real_tensors(function):
    x = torch.randn(4, requires_grad=True)
    wanted, x.grad = function(x), None
    given = torch.compile(function, backend=_run)(x)
    assert torch.equal(wanted, given) and wanted.requires_grad == given.requires_grad


def test_operators_that_return_nothing_are_part_of_one_graph():
    @torch.library.custom_op("capture_tests::raise_by", mutates_args={"x"})
    def raise_by(x: torch.Tensor, k: float = 1.0) -> None:
        x.add_(k)

    def function(x):
        y = x.sin()
        raise_by(y)
        raise_by(x, k=2.0)
        return x + y

    for backend in ("eager", "aot_eager"):
        x, other = torch.ones(3), torch.ones(3)
        assert torch.equal(torch.compile(function, backend=backend, fullgraph=True)(x), function(other))
        assert torch.equal(x, other)


def test_a_refusal_that_the_program_catches_is_raised():
    def function(x):
        y = x * 2
        try:
            y = y @ torch.ones(99)
        except RuntimeError:
            y = y * 0
        return y

    x = torch.ones(3)
    assert torch.compile(function, backend=_run)(x).tolist() == [0.0] * 3
    with pytest.raises(torch._dynamo.exc.Unsupported, match="inconsistent tensor size"):
        torch.compile(function, backend="eager", fullgraph=True)(x)


def test_a_reset_forgets_graphs_of_functions_that_are_gone():
    for _ in range(4):
        torch._dynamo.reset()
        for size in range(2, 8):  # as torch, counts graphs by the code of `forward`
            layer = torch.nn.Sequential(torch.nn.Linear(size, size))
            torch.compile(layer, backend="eager", fullgraph=True, dynamic=False)(torch.ones(1, size))


def test_places_of_views_with_open_sizes():
    def function(x):
        return x[1:].storage_offset(), x[1:, 1:].storage_offset(), (x + 1)[2:].storage_offset(), x[1:].stride()

    x = torch.randn(4, 5)
    assert torch.compile(function, backend=_run, dynamic=True)(x) == (5, 6, 10, (5, 1))


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("backend", ["aot_eager", _run], ids=["aot_eager", "own"])
def test_transforms_are_let_pass_where_one_graph_is_asked_for(name, backend):
    x = torch.randn(4)
    given = torch.compile(TRANSFORMS[name], backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(given, TRANSFORMS[name](x), rtol=1e-5, atol=1e-6)


def test_a_backward_pass_of_the_programs_own_is_refused_within_one_graph():
    def asked(x):
        return torch.autograd.grad(_energy(x), x)[0]

    with pytest.raises(torch._dynamo.exc.Unsupported, match="backward pass"):
        torch.compile(asked, backend=_run, fullgraph=True)(torch.randn(4, requires_grad=True))


def test_a_compiled_backward_pass_is_not_differentiated_again():
    x = torch.ones(3, requires_grad=True)
    compiled = torch.compile(lambda x: (x**3).sum(), backend="aot_eager", fullgraph=True)
    (first,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    assert first.tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.grad(first.sum(), x)
    assert torch.func.hessian(compiled)(torch.ones(2)).tolist() == [[6.0, 0.0], [0.0, 6.0]]


def test_gradients_that_tensors_have_are_inputs_of_one_graph():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def step(x):
        x.grad.mul_(2)
        made = x.detach() * 2
        return x.grad + made, made.grad, x.untyped_storage().nbytes()

    x = torch.ones(3, requires_grad=True)
    x.sum().backward()
    added, none, size = torch.compile(step, backend=backend, fullgraph=True)(x)
    assert added.tolist() == [4.0, 4.0, 4.0] and none is None and size == 12
    assert x.grad.tolist() == [2.0, 2.0, 2.0] and len(graphs) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", lambda graph, inputs: graph.forward])
def test_a_tensor_that_is_detached_in_place_in_one_graph(backend):
    def function(x):
        y = x * 2
        z = y * 3
        y.detach_()
        return z + y, y.requires_grad, y.grad_fn is None

    x = torch.ones(2, requires_grad=True)
    made, requires_grad, is_leaf = torch.compile(function, backend=backend, fullgraph=True)(x)
    made.sum().backward()
    assert (made.tolist(), requires_grad, is_leaf, x.grad.tolist()) == ([8.0, 8.0], False, True, [6.0, 6.0])
