"""torch.compile(backend=function): the graphs that a backend is handed, and what becomes of their values."""

import copy
import operator

import mica as torch
import pytest
from mica import nn
from mica._dynamo.testing import CompileCounter, EagerAndRecordGraphs
from mica._dynamo.utils import counters


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    counters.clear()


def test_a_backend_receives_a_graph_once():
    backend = EagerAndRecordGraphs()

    @torch.compile(backend=backend)
    def f(x, y):
        return {"out": (x.sin() + torch.cos(y) * 2).sum(0), "size": x.shape[0]}

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(2):
        out = f(x, y)
    assert type(out["out"]) is torch.Tensor and torch.equal(out["out"], (x.sin() + torch.cos(y) * 2).sum(0))
    (graph,) = backend.graphs
    assert [node.target for node in graph.graph.nodes if node.op == "placeholder"] == ["L_x_", "L_y_"]
    assert len(graph.graph.output_node().args[0]) == 1, "what nobody holds is no output"
    f(torch.randn(2, 2), torch.randn(2, 2))
    assert len(backend.graphs) == 2


def test_branches_on_values_break():
    counter = CompileCounter()

    @torch.compile(backend=counter)
    def f(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    assert f(torch.ones(2)).tolist() == [3, 3] and f(-torch.ones(2)).tolist() == [-3, -3]
    assert f(torch.ones(2)).tolist() == [3, 3] and counter.frame_count == 3
    assert sum(counters["graph_break"].values()) == 3
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"(?s)asks for values.*if y.sum\(\) > 0"):
        torch.compile(f._torchdynamo_orig_callable, backend=counter, fullgraph=True)(torch.ones(2))


def test_training_is_bit_equal():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    other, counter = copy.deepcopy(plain), CompileCounter()
    x, target = torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 1, 0])
    for module in (plain, torch.compile(other, backend=counter)):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), target).backward()
            optimizer.step()
    for a, b in zip(plain.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert counter.frame_count == 1


def test_python_runs_on_every_call():
    class State:
        count, kept = 0, None

    counter, state = CompileCounter(), State()

    @torch.compile(backend=counter)
    def f(x):
        state.count += 1
        x.add_(state.count)
        part = x[0]
        part.mul_(3)
        state.kept = x * 2
        x[1] = 5.0
        return x, part

    x, y = torch.zeros(3, 2), torch.zeros(3, 2)
    out, part = f(x)
    y.add_(1)
    y[0].mul_(3)
    kept = y * 2
    y[1] = 5.0
    assert out is x and torch.equal(x, y) and torch.equal(state.kept, kept) and torch.equal(part, y[0])
    assert part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    f(x)
    assert state.count == 2 and counter.frame_count == 2, "another number is another graph"


def test_functions_with_a_backward_of_their_own_and_transforms():
    class Sevenfold(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 7

    counter = CompileCounter()
    x = torch.ones(3, requires_grad=True)
    torch.compile(lambda x: Sevenfold.apply(x + 1).sum(), backend=counter)(x).backward()
    assert x.grad.tolist() == [7, 7, 7]
    y = torch.randn(3, 4)
    f = torch.compile(lambda x: torch.vmap(lambda row: row.sin().sum())(x) * 2, backend=counter)
    assert torch.allclose(f(y), y.sin().sum(1) * 2)
    assert torch.allclose(torch.compile(torch.func.grad(lambda x: (x**2).sum()), backend=counter)(y), 2 * y)
    hidden = torch.compiler.disable(lambda x: x.tolist())
    assert torch.compile(lambda x: hidden(x * 3), backend=counter)(torch.ones(2)) == [3, 3]


def test_errors_are_the_programs_and_the_backends():
    def fails(graph, inputs):
        raise ValueError("no")

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"(?s)fails.*ValueError: no"):
        torch.compile(lambda x: x + 1, backend=fails)(torch.ones(1))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.compile(lambda x: x @ torch.ones(5, 5), backend=CompileCounter())(torch.ones(2, 2))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="must return a callable"):
        torch.compile(lambda x: x + 1, backend=lambda graph, inputs: 3)(torch.ones(1))


def test_aot_eager_is_captured_with_fullgraph():
    module, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(3, 4)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    compiled(x).sum().backward()
    ours = module[0].weight.grad.clone()
    module.zero_grad()
    module(x).sum().backward()
    assert torch.allclose(ours, module[0].weight.grad)


def test_results_that_are_let_go_are_not_taken_for_others():
    def function(x):
        kept = []
        for i in range(150):
            y = (x + i).relu()
            if i % 7 == 0:
                kept.append(y * i)
            y = None
        return kept

    x = torch.randn(4)
    made = torch.compile(function, backend=CompileCounter(), fullgraph=True)(x)
    for a, b in zip(made, function(x), strict=True):
        assert type(a) is torch.Tensor and torch.equal(a, b)


def test_an_exception_of_the_programs_own_is_raised_as_it_is():
    @torch.compile(backend=CompileCounter(), fullgraph=True)
    def function(x):
        x.add_(1)
        raise KeyError("mine")

    x = torch.zeros(2)
    with pytest.raises(KeyError, match="mine"):
        function(x)
    assert x.tolist() == [1, 1]


def test_operators_are_written_as_the_program_writes_them():
    graphs = EagerAndRecordGraphs()

    def function(x, y):
        x = x + y
        x -= 1
        return x.mul(2) > y

    x, y = torch.randn(3), torch.randn(3)
    assert torch.equal(torch.compile(function, backend=graphs)(x, y), function(x, y))
    targets = [node.target for node in graphs.graphs[0].graph.nodes if "call" in node.op]
    assert targets == [operator.add, operator.isub, "mul", operator.gt]


def test_numbers_of_numpy_are_numbers():
    numpy = pytest.importorskip("numpy")
    counter = CompileCounter()
    function = torch.compile(lambda x, n: x + n, backend=counter)
    assert function(torch.zeros(2), numpy.float32(1.5)).tolist() == [1.5, 1.5]
    assert function(torch.zeros(2), numpy.float64(1.5)).tolist() == [1.5, 1.5] and counter.frame_count == 1


def test_ranges_and_types_are_part_of_a_graph():
    counter = CompileCounter()
    function = torch.compile(lambda x: (torch.tensor(range(x.size(0))), x.type("torch.DoubleTensor")), backend=counter)
    for _ in range(3):
        indices, double = function(torch.ones(3))
        assert indices.tolist() == [0, 1, 2] and double.dtype == torch.float64
    assert counter.frame_count == 1


def test_masks_and_results_of_others_are_changed_in_place():
    def function(x, mask):
        x.view(-1)[:2].copy_(torch.tensor([5.0]))
        x[mask[:, 0]] = 7
        return torch.index_put(x, [mask], torch.tensor(9.0))

    leaf = torch.randn(4, 3, requires_grad=True)
    mask = torch.arange(12).view(4, 3) % 5 == 0
    a, b = leaf + 1, leaf + 1
    made = torch.compile(function, backend=CompileCounter(), fullgraph=True)(a, mask)
    assert torch.equal(made, function(b, mask)) and torch.equal(a, b)


def test_gradients_by_name_are_one_call():
    graphs = EagerAndRecordGraphs()
    x, g = torch.randn(1, 1, 4, 4), torch.randn(1, 1, 2, 2)
    function = lambda g, x: torch.ops.aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [0, 0], False, True, None)  # noqa: E731
    assert torch.equal(torch.compile(function, backend=graphs, fullgraph=True)(g, x), function(g, x))
    assert sum("call" in node.op for node in graphs.graphs[0].graph.nodes) == 1


def test_classes_that_hand_calls_on_are_run_as_they_are():
    class Plain(torch.Tensor):
        pass

    class Handing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs)

    for kind in (Plain, Handing):
        x = torch.ones(3).as_subclass(kind)
        made = torch.compile(lambda x: (x + 1).sin() * 2, backend=CompileCounter())(x)
        assert type(made) is kind and torch.equal(made.as_subclass(torch.Tensor), (torch.ones(3) + 1).sin() * 2)


def test_rows_that_are_chosen_by_values_end_a_graph():
    experts = [torch.nn.Linear(8, 8) for _ in range(3)]

    def function(x, index):
        out = torch.zeros_like(x)
        for i, expert in enumerate(experts):
            (rows,) = torch.where(index == i)
            if rows.numel():
                out = out.index_add(0, rows, expert(x[rows]))
        return out

    compiled = torch.compile(function, backend=lambda graph, inputs: graph.forward)
    for _ in range(3):
        x, index = torch.randn(10, 8), torch.randint(0, 3, (10,))
        assert torch.equal(compiled(x, index), function(x, index))


def test_another_module_in_the_place_of_a_compiled_one():
    compiled, x = torch.compile(torch.nn.Linear(2, 2)), torch.ones(1, 2)
    other = torch.nn.Linear(2, 3)
    compiled._orig_mod = other
    assert torch.equal(compiled(x), other(x)) and compiled.out_features == 3


def test_functions_that_ask_for_values_within_are_not_refused():
    x, y = torch.randn(4, 2), torch.randn(4)
    compiled = torch.compile(lambda x, y: torch.histogramdd(x, bins=[3, 3], weight=y), backend="eager", fullgraph=True)
    wanted = torch.histogramdd(x, bins=[3, 3], weight=y)
    given = compiled(x, y)
    assert torch.equal(given.hist, wanted.hist) and all(map(torch.equal, given.bin_edges, wanted.bin_edges))


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LazyLinear(8), nn.LazyLinear(2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


@pytest.mark.parametrize("options", [{}, {"dynamic": True}], ids=str)
def test_lazy_modules_take_their_shapes_outside_of_the_graph(options):
    backend, x = EagerAndRecordGraphs(), torch.randn(5, 3)
    torch.manual_seed(1)
    plain = Lazy()
    expected = plain(x)
    torch.manual_seed(1)
    module = Lazy()
    found = torch.compile(module, backend=backend, fullgraph=True, **options)(x)
    assert torch.equal(found, expected) and type(module.first) is nn.Linear
    (graph,) = backend.graphs
    calls = [node.target.__name__ for node in graph.graph.nodes if node.op == "call_function"]
    assert calls == ["linear", "relu", "linear"]
    module.load_state_dict(plain.state_dict())
    assert type(module.first.in_features) is int and type(module.second.in_features) is int


def test_attributes_of_classes_that_hand_calls_on():
    class Handing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.randn(3, 2).as_subclass(Handing)
    found = torch.compile(lambda x: (x.T + x.data.mT) * 2, backend=CompileCounter())(x)
    assert type(found) is Handing and torch.equal(found.as_subclass(torch.Tensor), (x.T * 4).as_subclass(torch.Tensor))


def test_types_of_python_as_dtypes():
    def f(x):
        return (x * 5).to(bool).to(float).to(int) + 8, x.to(dtype=int), x.to("cpu", float), x.to(complex)

    x = torch.randn(5)
    found = torch.compile(f, backend=CompileCounter(), fullgraph=True)(x)
    assert [each.dtype for each in found] == [torch.int64, torch.int64, torch.float64, torch.complex128]
    assert all(map(torch.equal, found, f(x)))


@pytest.mark.parametrize("options", [{"fullgraph": True}, {"dynamic": True}], ids=str)
def test_attributes_that_a_program_sets_stay(options):
    def f(x, tag):
        y = x + 1
        y.tag = tag
        y.grad = x
        return y

    x = torch.randn(5)
    found = torch.compile(f, backend=CompileCounter(), **options)(x, "name")
    assert vars(found) == {"tag": "name"} and torch.equal(found, x + 1) and torch.equal(found.grad, x)


def test_functions_of_autograd_are_not_refused_in_one_graph():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0]

    x = torch.randn(3, requires_grad=True)
    out = torch.compile(lambda x: Square.apply(x + 1).sum(), backend=CompileCounter(), fullgraph=True)(x)
    out.backward()
    assert torch.equal(x.grad, 2 * (x + 1).detach())


def test_hooks_of_tensors_are_not_refused_in_one_graph():
    def add_one(leaf):
        leaf.grad.add_(1)

    def f(x):
        y = x * 2
        y.register_hook(lambda grad: grad * 3)
        x.register_post_accumulate_grad_hook(add_one)
        return (y + 1).sum()

    x = torch.ones(3, requires_grad=True)
    torch.compile(f, backend=CompileCounter(), fullgraph=True)(x).backward()
    assert x.grad.tolist() == [7.0] * 3


def test_calls_that_write_into_tensors_and_return_nothing():
    x = torch.arange(6.0).view(2, 3)

    @torch.compile(backend=(backend := EagerAndRecordGraphs()), fullgraph=True)
    def unbound(x, first, second):
        torch.unbind_copy(x * 1, out=[first, second])
        return first + 1

    @torch.compile(backend=(pieces := EagerAndRecordGraphs()), fullgraph=True)
    def split(x):
        out = (torch.zeros(1, 3), torch.zeros(1, 3))
        torch.split_copy(x * 1, 1, out=out)
        return out[1] + 1

    first, second = torch.zeros(3), torch.zeros(3)
    assert unbound(x, first, second).tolist() == [1, 2, 3]
    assert first.tolist() == [0, 1, 2] and second.tolist() == [3, 4, 5]
    assert split(x).tolist() == [[4, 5, 6]]
    assert len(backend.graphs) == len(pieces.graphs) == 1


def test_optimizers_of_sparse_gradients():
    """A sparse tensor has no fake counterpart. Asking for its shape needs none."""
    table, indices = torch.nn.Embedding(10, 4, sparse=True), torch.tensor([[1, 2, 2], [0, 3, 1]])
    other = torch.nn.Embedding(10, 4, sparse=True)
    other.load_state_dict(table.state_dict())
    optimizers = [torch.optim.SparseAdam(each.parameters(), 0.1) for each in (table, other)]

    def step(table, optimizer):
        optimizer.zero_grad()
        loss = table(indices).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled = torch.compile(step, backend=lambda graph, example: graph.forward)
    for _ in range(3):
        assert torch.equal(step(table, optimizers[0]), compiled(other, optimizers[1]))
    assert torch.equal(table.weight, other.weight)
