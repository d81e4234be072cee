"""Modes, autocast and random streams within functions whose graphs a backend receives."""

import mica as torch
import pytest
from mica import nn
from mica._dynamo.testing import CompileCounter, EagerAndRecordGraphs
from mica._dynamo.utils import counters
from mica._functorch.aot_autograd import aot_module_simplified


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    counters.clear()


def test_modes_and_gradients():
    def f(x, w):
        with torch.no_grad():
            a = x @ w
        with torch.autocast("cpu", torch.bfloat16):
            b = x @ w
        (g,) = torch.autograd.grad((x @ w).sum(), w)
        return a, b, x @ w, g

    counter, x, w = CompileCounter(), torch.randn(2, 3), torch.randn(3, 3, requires_grad=True)
    for a, b in zip(torch.compile(f, backend=counter)(x, w), f(x, w), strict=True):
        assert torch.equal(a, b) and a.dtype == b.dtype and a.requires_grad == b.requires_grad


def test_random_numbers_are_the_same():
    def f(x):
        a = torch.rand(3)
        torch.manual_seed(5)
        return a + x, torch.rand(3), nn.functional.dropout(x, 0.5)

    found = []
    for function in (f, torch.compile(f, backend=CompileCounter())):
        torch.manual_seed(3)
        found.append((*function(torch.ones(3)), torch.get_rng_state()))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_autocast_within_a_function_is_part_of_its_graph():
    backend = EagerAndRecordGraphs()

    def f(x, y):
        before = x @ y
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inner = x @ y
            with torch.autocast("cpu", dtype=torch.float16):
                other = x @ y
            with torch.autocast("cpu", enabled=False):
                plain = x @ y
        return before, inner, other, plain, x @ y

    x, y = torch.randn(4, 4), torch.randn(4, 4)
    compiled = torch.compile(f, backend=backend, fullgraph=True)
    assert all(map(torch.equal, compiled(x, y), f(x, y)))
    (graph,) = backend.graphs
    names = [node.target.__name__ for node in graph.graph.nodes if node.op == "call_function"]
    enter, leave = "_enter_autocast", "_exit_autocast"
    product = "matmul"
    assert names == [product, enter, product, enter, product, leave, leave, product, product]
    assert [node.args for node in graph.graph.nodes if node.name == enter] == [("cpu", torch.bfloat16, True, None)]
    with torch.autocast("cpu", dtype=torch.float16):
        assert [each.dtype for each in compiled(x, y)] == [each.dtype for each in f(x, y)]
    program, _ = torch._dynamo.export(f)(x, y)
    assert all(map(torch.equal, program(x, y), f(x, y)))
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_with_breaks_open_sizes_and_failures():
    def f(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            first = x @ y
            if first.sum() > 0:  # a break within the block
                first = first + 1
            return first @ y

    x, y = torch.randn(4, 4), torch.randn(4, 4)
    assert torch.equal(torch.compile(f, backend=CompileCounter())(x, y), f(x, y))
    sizes = torch.compile(f, backend=CompileCounter(), dynamic=True)  # the product fixes sizes while the block is open
    for rows in (3, 5):
        given = torch.randn(rows, 4)
        assert torch.equal(sizes(given, y), f(given, y))
        assert not torch.is_autocast_enabled("cpu")

    def failing(module, inputs):
        def run(*args):
            torch.amp.autocast_mode._enter_autocast("cpu", torch.float16, True, None)
            raise ValueError("the graph fails")

        return run

    with pytest.raises(ValueError, match="the graph fails"):
        torch.compile(f, backend=failing)(x, y)
    assert not torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16


def test_modes_that_change_before_anything_is_recorded():
    def f(x):
        x.shape  # noqa: B018
        with torch.inference_mode():
            y = x * 2
        return y.clone() + 1

    assert torch.compile(f, backend=CompileCounter())(torch.ones(2)).tolist() == [3.0, 3.0]


def restored():
    state = torch.get_rng_state()
    first = torch.rand(5)
    torch.set_rng_state(state)
    return first, torch.rand(5)


def asked_between():
    first = torch.rand(5)
    state = torch.default_generator.get_state()
    second = torch.rand(5)
    torch.default_generator.set_state(state)
    return first, second, torch.rand(5)


def seeded_twice():
    torch.manual_seed(3)
    first = torch.rand(5)
    torch.manual_seed(3)
    return first, nn.functional.dropout(torch.ones(5))


def forked():
    first = torch.rand(5)
    with torch.random.fork_rng():
        second = torch.rand(5)
    return first, second, torch.rand(5)


def own_stream():
    generator = torch.Generator().manual_seed(4)
    first = torch.rand(5, generator=generator)
    state = generator.get_state()
    second = torch.rand(5, generator=generator)
    generator.set_state(state)
    return first, second, torch.rand(5, generator=generator)


def attention_between():
    x = torch.ones(1, 2, 4, 4)
    torch.manual_seed(5)
    first = nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    torch.manual_seed(5)
    return first, nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)


@pytest.mark.parametrize("function", [restored, asked_between, seeded_twice, forked, own_stream, attention_between])
def test_random_streams_that_a_function_asks_for(function):
    torch.manual_seed(0)
    expected, after = function(), torch.rand(2)
    torch.manual_seed(0)
    found = torch.compile(function, backend=CompileCounter(), fullgraph=True)()
    assert all(map(torch.equal, found, expected)) and torch.equal(torch.rand(2), after)
    assert type(torch.Generator.get_state).__name__ == "method_descriptor", "the engine's own again"


def test_a_tensor_that_is_detached_in_place_gets_no_gradient():
    def f(a):
        made = a * 3
        made.detach_()
        return made, a + 1

    x = torch.ones(2, requires_grad=True)
    made, other = torch.compile(f, backend="aot_eager")(x)
    assert not made.requires_grad
    other.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_modes_of_functions_are_asked_about_detach_in_place():
    seen = []

    class Notes(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function.__name__)
            return function(*args, **(kwargs or {}))

    x = torch.ones(2, requires_grad=True) * 1
    with Notes():
        x.detach_()
    assert seen == ["detach_"]
    assert not x.requires_grad


@pytest.mark.parametrize("backend", ["own", "of aten"])
def test_default_devices_and_dtypes(backend):
    def own(graph, example):
        return graph.forward

    def of_aten(graph, example):
        return aot_module_simplified(graph, example, fw_compiler=lambda graph, example: graph)

    def compiled(function):
        torch._dynamo.reset()
        return torch.compile(function, backend=own if backend == "own" else of_aten, fullgraph=True)

    x = torch.arange(3)

    def on_another_device(x):
        with torch.device("meta"):
            made = torch.ones(2) + 1
        return made, torch.zeros(3) + x

    made, other = compiled(on_another_device)(x)
    assert made.device.type == "meta" and torch.equal(other, x.float())

    def of_another_dtype(x):
        first = torch.ones(2) + 1
        torch.set_default_dtype(torch.float64)
        second = torch.ones(2) / x[1]
        torch.set_default_dtype(torch.float32)
        return first, second

    first, second = compiled(of_another_dtype)(x)
    assert first.dtype == torch.float32 and second.dtype == torch.float64
    assert first.tolist() == [2, 2] and second.tolist() == [1, 1]

    scaled, ones = compiled(lambda x: torch.tensor(1.5) * x), compiled(lambda x: torch.ones(3) * x)
    assert scaled(x).dtype == torch.float32 and ones(x).device.type == "cpu"
    torch.set_default_dtype(torch.float64)
    try:
        assert scaled(x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    made = compiled(lambda: torch.ones(3) * 2)
    assert made().device.type == "cpu"
    with torch.device("meta"):
        assert made().device.type == "meta" and torch.ones(1).device.type == "meta"
    assert made().device.type == "cpu"
    assert scaled(x).dtype == torch.float32
