"""aot_function: inputs that are changed, results that are views, and inputs that share memory."""

import mica as torch
import pytest
from mica._functorch.aot_autograd import aot_function, aot_module_simplified
from mica._functorch.compilers import nop
from mica._functorch.partitioners import min_cut_rematerialization_partition


def compiled_with_graph(f, **options):
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return nop(graph, inputs)

    return aot_function(f, keep, nop, **options), graphs


def both(f, make, requires_grad):
    """(results, gradient, inputs) of a function, and of the compiled one. The results are changed before the pass."""
    for function in (f, aot_function(f, nop)):
        base = torch.arange(1.0, 5.0).view(2, 2).requires_grad_(requires_grad)
        inputs = make(base * 1)
        made = function(*inputs)
        made = list(made) if isinstance(made, tuple) else [made]
        for each in made:
            each.add_(1)
        gradient = None
        if requires_grad:
            total = sum((each * each).sum() for each in (*made, *inputs) if each.requires_grad)
            gradient = torch.autograd.grad(total, base)[0]
        yield [each.detach().clone() for each in made], gradient, inputs, [each.requires_grad for each in made]


def view_of_input(a):
    return a.view(-1)


def changed_and_view(a):
    a.mul_(2)
    return a.t(), a * 3


def changed_and_returned(a):
    a.add_(1)
    return a


def view_of_intermediate(a):
    return (a * 3).view(-1)


def value_and_its_view(a):
    made = a * 3
    return made, made.t()


def two_views(a):
    made = a * 3
    return made.view(-1), made.t(), a + 1


def pieces_and_whole(a):
    made = a * 3
    return (*made.unbind(0), made.view(-1))[-1:]


def sizes_changed(a):
    a.t_()
    return a * 2


def sizes_and_numbers_changed(a):
    a.t_()
    a[0].mul_(2)
    return a.view(a.shape)


def detached_change(a):
    a.detach().mul_(2)
    return a + 1


FUNCTIONS = [view_of_input, changed_and_view, changed_and_returned, view_of_intermediate, value_and_its_view,
             two_views, pieces_and_whole, sizes_changed, sizes_and_numbers_changed, detached_change]  # fmt: skip


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_results_may_be_changed_as_those_of_the_function(f, requires_grad):
    theirs, ours = both(f, lambda x: [x], requires_grad)
    for name, (a, b) in {"results": (theirs[0], ours[0]), "inputs": (theirs[2], ours[2])}.items():
        assert all(torch.equal(x, y) and x.stride() == y.stride() for x, y in zip(a, b, strict=True)), name
    assert theirs[3] == ours[3]
    assert theirs[1] is None or torch.equal(theirs[1], ours[1])


def change_one_of_two(a, b):
    a.mul_(2)
    return a + b, b[:1]


PAIRS = {
    "twice the same": lambda x: [x, x],
    "two views": lambda x: [x.view(-1), x.view(-1)],
    "overlapping rows": lambda x: [x.view(-1)[:3], x.view(-1)[1:]],
    "rows apart": lambda x: [x[0], x[1]],
    "tensor and view": lambda x: [x, x.t()],
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("pair", PAIRS)
def test_inputs_that_share_memory(pair, requires_grad):
    theirs, ours = both(change_one_of_two, PAIRS[pair], requires_grad)
    assert all(torch.equal(x, y) for x, y in zip(theirs[0] + theirs[2], ours[0] + ours[2], strict=True))
    assert theirs[1] is None or torch.equal(theirs[1], ours[1])


def test_inputs_that_share_memory_are_one_input_of_the_graph():
    compiled, graphs = compiled_with_graph(change_one_of_two)
    x = torch.ones(4)
    compiled(x[:3], x[1:])
    assert sum(node.op == "placeholder" for node in graphs[0].graph.nodes) == 1
    compiled(x[:2], x[2:])  # these have no element in common
    assert sum(node.op == "placeholder" for node in graphs[1].graph.nodes) == 2


def test_an_input_that_is_returned_is_the_same_object():
    x = torch.ones(3)
    assert aot_function(changed_and_returned, nop)(x) is x
    y = torch.ones(3, requires_grad=True)
    assert aot_function(lambda a: (a, a * 2), nop)(y)[0] is y


def test_views_of_inputs_are_made_by_the_operators_that_the_function_called():
    x = (torch.ones(4, requires_grad=True) * 1).view(2, 2)
    made = aot_function(lambda a: (a.view(-1), a * 2), nop)(x)
    assert "ViewBackward" in type(made[0].grad_fn).__name__
    assert "CompiledFunctionBackward" in type(made[1].grad_fn).__name__


def test_the_graph_returns_changed_inputs_before_the_results():
    compiled, graphs = compiled_with_graph(lambda a: (a.mul_(2), a * 3)[1])
    compiled(torch.ones(2, requires_grad=True) * 1)
    assert "return (mul, mul_1)" in graphs[0].code
    assert "copy_" not in graphs[0].code


@pytest.mark.parametrize("keeps", [False, True])
def test_changes_that_autograd_does_not_see_may_stay_in_the_graph(keeps):
    def f(a):
        with torch.no_grad():
            a.mul_(2)
        return a + 3

    compiled, graphs = compiled_with_graph(f, keep_inference_input_mutations=keeps)
    x = torch.ones(2, requires_grad=True) * 1
    made = compiled(x)
    assert torch.equal(x, torch.full((2,), 2.0))
    assert torch.equal(made, torch.full((2,), 5.0))
    assert ("copy_" in graphs[0].code) == keeps


def test_a_function_without_differentiable_results_has_an_inference_graph():
    compiled, graphs = compiled_with_graph(lambda a: a.view(-1))
    made = compiled(torch.ones(2, 2, requires_grad=True))
    assert made.requires_grad
    assert "def forward(self, arg0_1)" in graphs[0].code


def test_a_view_that_was_made_under_no_grad_requires_grad_and_gets_none():
    def f(a):
        made = a * 3
        with torch.no_grad():
            view = made.view(-1)
        return made.sum(), view

    x = torch.ones(2, 2, requires_grad=True)
    total, view = aot_function(f, nop)(x)
    assert view.requires_grad == f(x)[1].requires_grad
    total.backward()
    assert torch.equal(x.grad, torch.full((2, 2), 3.0))


def test_the_backward_graph_is_compiled_where_it_is_first_wanted():
    graphs = []
    compiled = aot_function(lambda a: a.sin(), nop, lambda graph, inputs: graphs.append(graph) or graph)
    x = torch.ones(2, requires_grad=True)
    made = compiled(x)
    assert not graphs
    made.sum().backward()
    assert torch.equal(x.grad, x.detach().cos())
    assert len(graphs) == 1


def test_memory_that_is_changed_for_another():
    def f(a):
        with torch.no_grad():
            a.set_(torch.arange(4.0))
        return a * 2

    x = torch.ones(4)
    assert torch.equal(aot_function(f, nop)(x), torch.arange(4.0) * 2)
    assert torch.equal(x, torch.arange(4.0))


def test_other_memory_that_is_changed_where_autograd_sees_it_is_refused():
    def f(a, b):
        with torch.no_grad():
            a.set_(b)
        a.mul_(2)
        return a + b

    inputs = [torch.ones(3, requires_grad=True) * 1 for _ in range(2)]
    with pytest.raises(AssertionError, match="but the input has other mutations that we cannot"):
        aot_function(f, nop)(*inputs)


def test_a_compiled_module_is_compiled_again_for_inputs_that_share_memory():
    class Changes(torch.nn.Module):
        def forward(self, a, b):
            return change_one_of_two(a, b)

    x = torch.ones(4)
    compiled = aot_module_simplified(Changes(), [torch.ones(3), torch.ones(3)], nop)
    made = compiled(x[:3], x[1:])
    y = torch.ones(4)
    assert torch.equal(made[0], change_one_of_two(y[:3], y[1:])[0])
    assert torch.equal(x, y)


def test_gradients_that_a_function_enables_by_itself():
    def f(x):
        first = x.sin()
        with torch.enable_grad():
            second = x.cos()
        return first, second

    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        first, second = aot_function(f, nop)(x)
    assert not first.requires_grad
    second.sum().backward()
    torch.testing.assert_close(x.grad, -x.detach().sin())


def test_an_example_of_fake_tensors_is_compiled_at_the_first_call():
    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 3)

        def forward(self, x):
            return (self.linear(x) + torch.tensor([1.0]),)

    module, mode = Sum(), torch._subclasses.FakeTensorMode(shape_env=torch.fx.experimental.symbolic_shapes.ShapeEnv())
    graphs = []
    example = mode.from_tensor(torch.ones(4, 2))
    compiled = aot_module_simplified(
        module, [example], lambda graph, inputs: graphs.append(graph) or nop(graph, inputs)
    )
    for size in (4, 5, 4):
        x = torch.randn(size, 2)
        torch.testing.assert_close(compiled(x)[0], module(x)[0])
    assert len(graphs) == 2


@pytest.mark.parametrize("partition", [None, min_cut_rematerialization_partition])
def test_an_input_that_the_backward_pass_changes_is_changed_then(partition):
    @torch.library.custom_op(f"aot_aliases::clone_{partition is None}".lower(), mutates_args={})
    def copied(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return x.clone()

    def backward(ctx, gradient):
        with torch.no_grad():
            ctx.other.zero_()
        return gradient * 2, None

    def remember(ctx, inputs, output):
        ctx.other = inputs[1]

    copied.register_fake(lambda x, other: torch.empty_like(x))
    copied.register_autograd(backward, setup_context=remember)
    x, other, third = torch.ones(2, requires_grad=True), torch.ones(2), torch.ones(2)

    def f(x, other, third):
        third.mul_(5)
        return copied(x, other) + third

    made = aot_function(f, nop, partition_fn=partition, keep_inference_input_mutations=True)(x, other, third)
    assert other.tolist() == [1.0, 1.0]
    assert third.tolist() == [5.0, 5.0]
    made.sum().backward()
    assert other.tolist() == [0.0, 0.0]
    assert x.grad.tolist() == [2.0, 2.0]
    other.requires_grad_()
    made = aot_function(f, nop, partition_fn=partition)(x, other * 1, third)
    with pytest.raises(RuntimeError, match="does not support input mutations with requires_grad in backward"):
        torch.autograd.grad(made.sum(), x, create_graph=True)


CALLS = {
    "lu": lambda x: torch.lu(x)[0],
    "lu with infos": lambda x: torch.lu(x, True, True)[0],
    "linalg.lu": lambda x: torch.linalg.lu(x)[2],
    "quantile of a number": lambda x: torch.nanquantile(x[0, 0], 0.3, dim=0, keepdim=True),
}


@pytest.mark.parametrize("call", CALLS)
def test_gradients_of_calls_that_are_computed_in_parts(call):
    torch.manual_seed(0)
    x = torch.randn(3, 3, requires_grad=True)
    theirs, ours = CALLS[call](x), aot_function(CALLS[call], nop)(x)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad((made * made).sum(), x)[0] for made in (ours, theirs)]
    torch.testing.assert_close(*gradients)


def test_a_compiled_module_is_compiled_again_for_inputs_that_want_gradients():
    class Sum(torch.nn.Module):
        def forward(self, a, b):
            return a * 2 + b * 3

    compiled = aot_module_simplified(Sum(), [torch.ones(2, requires_grad=True), torch.ones(2)], nop)
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    compiled(a, b).sum().backward()
    assert a.grad.tolist() == [2.0, 2.0]
    assert b.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("changes", [False, True])
def test_a_module_that_was_compiled_for_one_input_twice(changes):
    class Product(torch.nn.Module):
        def forward(self, a, b):
            if changes:
                a.add_(1)
            return a * b

    x = torch.ones(2)
    compiled = aot_module_simplified(Product(), [x, x], nop)
    assert compiled(x, x).tolist() == [4.0 if changes else 1.0] * 2
    a, b = torch.ones(2), torch.full((2,), 5.0)
    assert compiled(a, b).tolist() == [10.0 if changes else 5.0] * 2
    assert b.tolist() == [5.0, 5.0]


def test_a_function_that_was_compiled_for_one_sparse_input_twice():
    compiled = aot_function(lambda a, b: a.to_dense() - b.to_dense(), nop)
    x, y = torch.eye(2).to_sparse(), (torch.eye(2) * 3).to_sparse()
    assert compiled(x, x).abs().sum() == 0
    assert compiled(x, y).sum() == -4


@pytest.mark.parametrize("requires_grad", [False, True])
def test_memory_of_another_input_that_is_changed_afterwards(requires_grad):
    def f(a, b):
        with torch.no_grad():
            a.set_(b)
            b.mul_(2)
        return a + b

    results = []
    for function in (f, aot_function(f, nop)):
        a, b = (torch.full((2,), value, requires_grad=requires_grad) * 1 for value in (3.0, 5.0))
        made = function(a, b)
        results.append([made, a, b])
    assert [v.tolist() for v in results[0]] == [v.tolist() for v in results[1]]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_result_that_was_transposed_in_place_is_no_view(requires_grad):
    def f(a):
        made = a * 3
        made.t_()
        return made, a + 1

    made = aot_function(f, nop)(torch.ones(2, 3, requires_grad=requires_grad))[0]
    assert made._base is None
    assert made.stride() == (1, 3)
    assert not made.detach_().requires_grad
