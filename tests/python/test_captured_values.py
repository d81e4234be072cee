"""What a captured function leaves to others: values that somebody keeps, what modes of the program see, names of inputs."""

import mica as torch
import pytest
from mica._dynamo.testing import CompileCounter, EagerAndRecordGraphs
from mica.utils.flop_counter import FlopCounterMode

GRAPHS = []


def keep_graph(graph, inputs):
    GRAPHS.append(graph)
    return graph


@pytest.fixture(scope="module")
def product():
    """An operator whose function of autograd keeps an input as an attribute, as transformers' experts do."""

    @torch.library.custom_op("captured_values::product", mutates_args=())
    def forward(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x * n

    @torch.library.custom_op("captured_values::product_backward", mutates_args=())
    def backward(grad: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return grad * n

    forward.register_fake(lambda x, n: torch.full_like(x, 77))
    backward.register_fake(lambda grad, n: torch.full_like(grad, 77))

    def setup(ctx, inputs, output):
        ctx.n = inputs[1]

    forward.register_autograd(lambda ctx, grad: (backward(grad, ctx.n), None), setup_context=setup)
    return forward


class Own(torch.Tensor):
    pass


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.as_subclass(Own),
        lambda x: torch.Tensor._make_subclass(Own, x),
        lambda x: torch.Tensor.__new__(Own, x),
        Own,
    ],
)
def test_a_tensor_of_a_class_is_made_of_a_value(make, fullgraph):
    def function(x):
        made = make(x * 2)
        return made, made.sin() + 1

    x = torch.arange(3.0)
    made, after = torch.compile(function, backend=keep_graph, fullgraph=fullgraph)(x)
    assert type(made) is Own and made.tolist() == [0, 2, 4]
    assert type(after) is Own and torch.equal(after.as_subclass(torch.Tensor), (x * 2).sin() + 1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_nested_tensors_are_made_of_values(dynamic):
    def function(values, lengths):
        offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        made = torch.nested.nested_tensor_from_jagged(values * 2, offsets)
        other = torch.nested.nested_tensor([values[:2] + 1, values[2:] - 1], layout=torch.jagged)
        both = torch.cat([made, made.sin()], -1)
        return both, made.sum(1), torch.nested.to_padded_tensor(made, 0.0), other.values()

    compiled = torch.compile(function, backend=keep_graph, fullgraph=True, dynamic=dynamic)
    for rows in (9, 11):
        args = torch.randn(rows, 5), torch.tensor([2, 3, rows - 5])
        for made, expected in zip(compiled(*args), function(*args), strict=True):
            made, expected = (each.values() if each.is_nested else each for each in (made, expected))
            assert made.device.type == "cpu" and torch.equal(made, expected)


def test_a_function_of_autograd_keeps_a_value(product):
    def function(x):
        n = torch.arange(3).cumsum(0)
        return product(torch.relu(x), n), n

    x = torch.ones(3, requires_grad=True)
    made, n = torch.compile(function, backend=keep_graph)(x)
    made.sum().backward()
    assert x.grad.tolist() == [0, 1, 3] and n.tolist() == [0, 1, 3] and made.tolist() == [0, 1, 3]


def test_a_backend_keeps_what_it_has_computed():
    kept = []

    def backend(graph, inputs):
        def run(*args):
            kept.append(graph(*args))
            return kept[-1]

        return run

    weight = torch.tensor([1.0, -2.0], requires_grad=True)
    compiled = torch.compile(lambda x: (torch.relu(x) * weight, x + 1), backend=backend)
    for _ in range(2):
        made, more = compiled(torch.tensor([3.0, 4.0]))
        assert made.tolist() == [3, -8] and more.tolist() == [4, 5] and made.grad_fn is not None
    with torch.no_grad():
        assert not compiled(torch.tensor([3.0, 4.0]))[0].requires_grad
    made.sum().backward()
    assert weight.grad.tolist() == [3, 4]
    assert all(value.tolist() in ([3, 4], [3, -8], [4, 5]) for values in kept for value in values)


class Doubled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad * 10


doubled = Doubled.apply


@pytest.mark.parametrize("apply", [doubled, lambda x: Doubled.apply(x)])
def test_functions_of_autograd_whose_apply_was_bound_before(apply):
    def function(x):
        return torch.relu(apply(x + 1)) * 3

    for call in (torch.compile(function, backend=keep_graph), function):
        x = torch.ones(3, requires_grad=True)
        call(x).sum().backward()
        assert x.grad.tolist() == [30, 30, 30]
        each = torch.func.vmap(lambda x: doubled(x) + 1)(torch.arange(3.0))
        assert each.tolist() == [1, 3, 5]


def test_modes_see_a_graph_run_and_not_its_capture():
    """torch 2.13 counts 288 in each call."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    compiled, x = torch.compile(model, backend=keep_graph), torch.randn(3, 4)
    for _ in range(3):
        with FlopCounterMode(display=False) as counter:
            compiled(x)
        assert counter.get_total_flops() == 288


def test_a_captured_function_is_part_of_an_exported_graph():
    layer = torch.nn.Linear(3, 2)
    compiled, x = torch.compile(layer, backend=keep_graph), torch.randn(4, 3)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return compiled(x) * 2

    program = torch.export.export(Model(), (x,))
    assert "aten.linear.default" in program.graph_module.code
    assert torch.equal(program.module()(x), layer(x) * 2)


class Key:
    """Something that is told apart by identity alone, as the modules are by which a cache finds its tensors."""

    def __repr__(self):
        return "Linear(3, 2)"


def test_inputs_of_one_name_are_told_apart():
    keys = [Key(), Key(), Key()]
    values = {key: torch.full((2,), float(i + 1)) for i, key in enumerate(keys)}
    compiled = torch.compile(lambda d: d[keys[0]] * 100 + d[keys[1]] * 10 + d[keys[2]], backend=keep_graph)
    assert compiled(values).tolist() == [123, 123]
    assert compiled({"a-b": torch.ones(2), "a+b": torch.ones(2), **values}).tolist() == [123, 123]
    mixed = torch.compile(lambda d: d["a-b"] - d["a+b"], backend=keep_graph)
    assert mixed({"a-b": torch.ones(2), "a+b": torch.zeros(2)}).tolist() == [1, 1]


def test_gradients_of_what_an_iterator_gives():
    layer, x = torch.nn.Linear(2, 2), torch.ones(2)
    for backend in ("eager", CompileCounter()):
        compiled = torch.compile(lambda x: torch.autograd.grad(layer(x).sum(), layer.parameters()), backend=backend)
        assert [each.tolist() for each in compiled(x)] == [[[1, 1], [1, 1]], [1, 1]]
    given = torch.autograd.grad(iter([layer(x).sum()]), layer.parameters(), materialize_grads=True)
    assert [each.tolist() for each in given] == [[[1, 1], [1, 1]], [1, 1]]
    torch.autograd.backward(iter([layer(x).sum()]), inputs=layer.parameters())
    assert layer.bias.grad.tolist() == [1, 1]


@pytest.mark.parametrize(
    "options",
    [{}, {"backend": "eager"}, {"backend": lambda graph, inputs: graph.forward}, {"mode": "reduce-overhead"}],
)
def test_arguments_may_have_any_names(options):
    def function(self, *, function=1, args=2, kwargs=3, name=4):
        return self + function + args + kwargs + name

    for made in (torch.compile(function, **options), torch.compiler.disable(function)):
        assert made(self=torch.ones(1), function=1, args=1, kwargs=1, name=1).tolist() == [5]


def test_what_is_no_break_in_one_graph():
    whole = {"backend": "eager", "fullgraph": True}
    x = torch.ones(2, requires_grad=True)
    assert torch.compile(lambda x: (x * 2).detach_() + 1, **whole)(x).tolist() == [3, 3]

    def prints(x):
        print("x is", x)
        return x + 1

    with pytest.raises(torch._dynamo.exc.Unsupported, match="__repr__"):
        torch.compile(prints, **whole)(torch.ones(2))
    with torch._dynamo.config.patch(reorderable_logging_functions={print}):
        assert torch.compile(prints, **whole)(torch.ones(2)).tolist() == [2, 2]
    with torch._dynamo.config.patch(reorderable_logging_functions={prints}):
        assert torch.compile(lambda x: prints(x) * 2, **whole)(torch.ones(2)).tolist() == [4, 4]
        with pytest.raises(torch._dynamo.exc.Unsupported, match="__repr__"):
            torch.compile(lambda x: str(x), **whole)(torch.ones(2))


def test_inference_mode_in_a_part_of_one_graph():
    def function(x):
        y = x * 3
        with torch.inference_mode():
            z = y + 1
        return y + z.clone()

    x = torch.ones(2, requires_grad=True)
    for backend in ("eager", "aot_eager", CompileCounter()):
        made = torch.compile(function, backend=backend, fullgraph=True)(x)
        assert made.tolist() == [7, 7] and made.requires_grad and not made.is_inference()


def test_a_parameter_that_a_captured_function_makes_is_one():
    made = torch.compile(lambda x: torch.nn.Parameter(x * 2), backend=CompileCounter())(torch.ones(2))
    assert type(made) is torch.nn.Parameter and made.is_leaf and made.requires_grad and made.tolist() == [2, 2]
    assert repr(made) == "Parameter containing:\ntensor([2., 2.], requires_grad=True)"


def test_a_class_may_answer_by_a_method_of_its_objects():
    class Counting(torch.Tensor):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.asked = getattr(self, "asked", 0) + 1
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    x = torch.ones(2).as_subclass(Counting)
    assert torch.compile(lambda x: x + 1, backend="eager", fullgraph=True)(x).tolist() == [2, 2] and x.asked


def test_a_compiled_module_trains_when_its_module_does():
    module = torch.nn.Dropout().eval()
    compiled = torch.compile(module, backend="eager")
    compiled.train()
    assert compiled.training and module.training
    module.eval()
    assert not compiled.training
    compiled.training = True
    assert module.training


class Held:
    """A holder of tensors that is none, and answers for functions that it is given to."""

    def __init__(self, **tensors):
        self.tensors = tensors

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.stack:
            names = args[0][0].tensors
            return cls(**{name: torch.stack([each.tensors[name] for each in args[0]], *args[1:]) for name in names})
        if func is torch.clone:
            return cls(**{name: each.clone() for name, each in args[0].tensors.items()})
        return NotImplemented


def test_calls_of_objects_that_hold_tensors_are_seen():
    def f(x):
        held = Held(a=x * 2, b=x + 1)
        both = torch.stack([held, torch.clone(held)], 0)
        return torch.vmap(lambda t: t.sum())(both.tensors["a"]) + both.tensors["b"].mean()

    backend, x = EagerAndRecordGraphs(), torch.randn(3, 4)
    assert torch.equal(torch.compile(f, backend=backend, fullgraph=True)(x), f(x))
    (graph,) = backend.graphs
    assert sum(node.target is torch.stack for node in graph.graph.nodes) == 2
    with pytest.raises(TypeError, match="all __torch_function__ handlers returned NotImplemented"):
        torch.compile(lambda x: torch.cat([Held(a=x), Held(a=x)]), backend=backend)(x)


def test_slices_up_to_what_the_graph_computed():
    """The number is asked for, so that a graph has it: sizes follow from it, also where they are computed once more."""

    def f(x, ends):
        low, high = max(ends[0], 0), min(ends[1] + 1, 6)
        y, z = x * 2, torch.zeros(6)
        z[low:high] = y[low - ends[0] : high - ends[0]]
        return torch.stack([z, x])  # needs the open size to be six

    backend = EagerAndRecordGraphs()
    compiled = torch.compile(f, backend=backend, dynamic=True)
    for numbers in ((1, 3), (0, 4), (1, 3)):
        x, ends = torch.randn(6), torch.tensor(numbers)
        assert torch.equal(compiled(x, ends), f(x, ends))
    slices = [node.args[1] for graph in backend.graphs for node in graph.graph.nodes if node.name.startswith("setitem")]
    assert [(each.start, each.stop) for each in slices] == [(1, 4), (0, 5)]
