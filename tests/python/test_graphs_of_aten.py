"""make_fx: graphs of aten's operators, with fixed and with open sizes; functionalize; AOT autograd."""

import mica as torch
import pytest
from mica import nn
from mica._functorch.aot_autograd import aot_function, aot_module, make_boxed_func
from mica._subclasses.fake_tensor import DataDependentOutputException
from mica.func import functionalize
from mica.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from mica.fx.experimental.symbolic_shapes import ShapeEnv, free_symbols, statically_known_true

aten = torch.ops.aten


def targets(module):
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_function_becomes_operators(mode):
    def f(x, y):
        assert get_proxy_mode() is not None
        return (x.sin() + y * 2).sum(0)

    made = make_fx(f, tracing_mode=mode)(torch.randn(3, 4), torch.randn(3, 4))
    assert targets(made) == ["aten.sin.default", "aten.mul.Tensor", "aten.add.Tensor", "aten.sum.dim_IntList"]
    assert [node.name for node in made.graph.nodes][:2] == ["x_1", "y_1"] and get_proxy_mode() is None
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    assert torch.equal(made(x, y), (x.sin() + y * 2).sum(0))
    assert made.graph.output_node().args[0].meta["val"].shape[0] == 4


def test_gradients_are_part_of_the_graph():
    def f(x, w):
        return torch.autograd.grad((x @ w).relu().sum(), w)

    x, w = torch.randn(3, 4), torch.randn(4, 5, requires_grad=True)
    made = make_fx(f, tracing_mode="fake")(x, w)
    assert "aten.threshold_backward.default" in targets(made) and "aten.ones_like.default" in targets(made)
    x = torch.randn(3, 4)
    assert torch.allclose(made(x, w)[0], f(x, w)[0])


def test_values_are_refused():
    with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
        make_fx(lambda x: x * x.sum().item())(torch.ones(2))
    with pytest.raises(DataDependentOutputException, match="aten._local_scalar_dense.default"):
        make_fx(lambda x: x if x.sum() > 0 else -x, tracing_mode="fake")(torch.ones(2))


def test_open_sizes_are_nodes():
    def f(x):
        return x.view(x.shape[0], -1)[: x.shape[0] // 2] * x.shape[0], x.new_zeros(2 * x.shape[0] + 1)

    made = make_fx(f, tracing_mode="symbolic")(torch.randn(6, 4, 5))
    assert targets(made).count("aten.sym_size.int") == 1
    for shape in ((8, 4, 3), (5, 7, 2)):
        x = torch.randn(shape)
        assert all(torch.equal(a, b) for a, b in zip(made(x), f(x), strict=True))


def test_sizes_of_layers_are_found():
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )
    made = make_fx(layers, tracing_mode="symbolic", _allow_non_fake_inputs=True)(torch.randn(2, 3, 32, 40))
    shape = next(node for node in made.graph.nodes if "convolution" in node.name).meta["val"].shape
    assert str(shape) == "torch.Size([s0, 8, ((s1 + 1)//2), ((s2 + 1)//2)])", "channels are static: the layer says so"
    x = torch.randn(5, 3, 33, 21)
    assert torch.allclose(made(x), layers(x))


def test_questions_become_guards():
    def f(x):
        if x.shape[0] > 4:
            return x + 1
        return x - 1

    made = make_fx(f, tracing_mode="symbolic")(torch.randn(6, 3))
    assert [str(guard.expr) for guard in made.shape_env.guards] == ["s0 > 4"]
    assert str(made.shape_env.var_to_range["s0"]) == "VR[5, int_oo]"


def test_open_numbers():
    env = ShapeEnv()
    n, m = (env.create_symintnode(env.create_symbol(value, "x")) for value in (6, 10))
    assert str(2 * n + 3 - n) == "s0 + 3" and str((n + m) * (n - m)) == "s0**2 - s1**2"
    assert str((4 * n + 3) // 2) == "2*s0 + 1" and n * m // n is not None and str(n * m // n) == "s1"
    assert isinstance(n, torch.SymInt) and isinstance(n > 3, torch.SymBool) and isinstance(n / 4, torch.SymFloat)
    assert statically_known_true(n + 1 > 2) and not statically_known_true(n > 2) and not env.guards
    assert torch.sym_max(n, 3) is not None and free_symbols((n, m)) == {"s0", "s1"}
    assert list(range(n)) == [0, 1, 2, 3, 4, 5] and str(env.guards[0].expr) == "Eq(s0, 6)"
    assert n + 1 == 7 and type(n + 1) is int, "from now on it is a number"
    with pytest.raises(RuntimeError, match="Could not guard on data-dependent"):
        bool(env.create_unbacked_symint() > 3)


def test_functionalize_removes_changes():
    def f(x):
        y = x.clone()
        y[0].add_(1)
        turned = y.t()
        turned.mul_(2)
        first, _ = y.split(2)
        first.zero_()
        x.add_(3)
        return y + x, turned, first

    made = make_fx(functionalize(f))(torch.randn(4, 4))
    changes = [name for name in targets(made) if name.startswith("aten.") and name.split(".")[1].endswith("_")]
    assert changes == ["aten.copy_.default"], "only the input gets its new value"
    ours = torch.randn(4, 4)
    theirs = ours.clone()
    assert all(torch.allclose(a, b) for a, b in zip(made(ours), f(theirs), strict=True)) and torch.equal(ours, theirs)
    without_views = make_fx(functionalize(f, remove="mutations_and_views"))(torch.randn(4, 4))
    assert "aten.t_copy.default" in targets(without_views) and "aten.t.default" not in targets(without_views)


def test_decompositions():
    table = {aten.silu.default: lambda x: x * x.sigmoid()}
    made = make_fx(nn.functional.silu, table)(torch.randn(3))
    assert targets(made) == ["aten.sigmoid.default", "aten.mul.Tensor"]


def test_aot_autograd_hands_over_two_graphs():
    graphs = []

    def compiler(graph, inputs):
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    def f(x, w):
        return {"loss": (x @ w).relu().sum(), "size": 3}

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    compiled = aot_function(f, compiler, compiler)
    for _ in range(2):
        out = compiled(x, w)
        out["loss"].backward()
    ours = [x.grad / 2, w.grad / 2]
    theirs = torch.autograd.grad(f(x, w)["loss"], (x, w))
    assert out["size"] == 3 and all(torch.allclose(a, b) for a, b in zip(ours, theirs, strict=True))
    assert len(graphs) == 2 and "tangents_1" in graphs[1].code and "aten.relu.default" in targets(graphs[0])
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    wrapped = aot_module(module, compiler)
    assert torch.allclose(wrapped(x), module(x))
    wrapped(x).sum().backward()
    assert module[0].weight.grad is not None


def test_numbers_close_to_those_that_stand_for_sizes():
    x = torch.randn(3, 5) * 1e5
    for bound in (30000, 31400, 30390):
        graph = make_fx(lambda x, bound=bound: x.clamp(-bound, bound) + bound, tracing_mode="symbolic")(x)
        longer = torch.randn(4, 6) * 1e5
        assert torch.equal(graph(longer), longer.clamp(-bound, bound) + bound)
    graph = make_fx(lambda x: x.mean() * x.shape[0] + (x.shape[1] - 1), tracing_mode="symbolic")(x)
    assert torch.equal(graph(x[:2]), x[:2].mean() * 2 + 4)


@pytest.mark.parametrize("size", [30000, 31390, 32000])
def test_sizes_of_vocabularies_are_no_open_sizes(size):
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(size, 4))

        def forward(self, x):
            return nn.functional.linear(x, self.weight).view(-1, size).softmax(-1).sum(-1)

    head, x = Head(), torch.randn(2, 3, 4)
    program = torch.export.export(head, (x,), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    x = torch.randn(5, 3, 4)
    assert torch.equal(program.module()(x), head(x))


_CELL = nn.LSTM(3, 4)
WHOLE = {
    "interpolate": lambda x: nn.functional.interpolate(x, scale_factor=2),
    "selu": lambda x: nn.functional.selu(x) + 1,
    "logsigmoid": lambda x: nn.functional.logsigmoid(x).sum(),
    "l1_loss": lambda x: nn.functional.l1_loss(x, x * 2 + 1),
    "rms_norm": lambda x: nn.functional.rms_norm(x, (8,)),
    "max_pool1d": lambda x: nn.functional.max_pool1d(x[0], 2) * 2,
    "reflected pad": lambda x: nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    "cdist": lambda x: torch.cdist(x[0], x[1]),
    "lstm": lambda x: _CELL(x[0, :, :2, :3])[0],
}


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", WHOLE)
def test_what_the_engine_computes_in_one_piece_is_a_node(name, mode):
    """Its result was a constant of the graph once, without a word."""
    function, x, other = WHOLE[name], torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)
    graph = make_fx(function, tracing_mode=mode, _allow_non_fake_inputs=True)(x)
    assert torch.allclose(graph(other), function(other), 1e-4, 1e-5)


def test_gradients_of_what_the_engine_computes_in_one_piece():
    def gradient(function):
        def inner(x):
            x = x.detach().requires_grad_()
            return torch.autograd.grad(function(x).pow(2).sum(), x)[0]

        return inner

    x, other = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)
    functions = [WHOLE[name] for name in ("selu", "rms_norm", "l1_loss", "cdist")]
    functions += [lambda x: x.sort()[0], lambda x: x.roll(1) * x.sigmoid(), lambda x: x.topk(2)[0]]
    for function in functions:
        graph = make_fx(gradient(function))(x)
        assert torch.allclose(graph(other), gradient(function)(other), 1e-4, 1e-5)


SHAPES = {
    "view": lambda x: (x * x).view(x.shape),
    "reshape": lambda x: (x * x).reshape(x.size()),
    "expand": lambda x: x[:1].expand(x.shape),
    "zeros": lambda x: torch.zeros(x.shape) + x,
    "new_ones": lambda x: x.new_ones(x.shape[:1]),
    "broadcast_shapes": lambda x: x.new_ones(torch.broadcast_shapes(x.shape, (1, 3))),
    "repeat": lambda x: x.repeat(x.shape),
}


@pytest.mark.parametrize("name", SHAPES)
def test_whole_shapes_stay_open(name):
    """x.shape among the arguments of a call was that of the example."""
    graph = make_fx(SHAPES[name], tracing_mode="symbolic")(torch.randn(4, 3))
    x = torch.randn(6, 3)
    assert torch.equal(graph(x), SHAPES[name](x))


def test_a_number_that_is_copied_into_an_argument_changes_it():
    graph = make_fx(lambda x: x.copy_(1))(torch.zeros(2))
    assert "torch.ops.aten.copy_.default(x_1, 1)" in graph.code  # as in torch
    x = torch.zeros(2)
    assert graph(x).tolist() == [1.0, 1.0] and x.tolist() == [1.0, 1.0]
    y = torch.zeros(2)
    assert torch.compile(lambda x: x.copy_(1), backend="aot_eager", fullgraph=True)(y).tolist() == [1.0, 1.0]
    assert y.tolist() == [1.0, 1.0]


def test_batch_norm_trains_through_two_graphs():
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch.manual_seed(0)
    plain, x = nn.BatchNorm1d(3), torch.randn(4, 3)
    module = nn.BatchNorm1d(3)
    compiled = aot_module(module, keep)
    for each in (plain, compiled):
        (each(x) * x).sum().backward()
    torch.testing.assert_close(module.weight.grad, plain.weight.grad)
    torch.testing.assert_close(module.running_var, plain.running_var)
    assert module.num_batches_tracked == 1
    saved = graphs[0].graph.output_node().args[0][4:]  # behind three changed buffers and the result
    assert len(saved) == len(set(saved))  # nothing is kept that the backward pass does not read


def test_the_settings_of_aot_autograd_are_a_part_of_functorch():
    from mica._as_torch import functorch_package

    assert functorch_package.compile.config is torch._functorch.config


@pytest.mark.parametrize(
    "function",
    [
        lambda a: torch.tensor(a.size(0)),
        lambda a: torch.tensor([a.size(0), 2]) * a.sum(),
        lambda a: torch.tensor([a.size(0) / 4, 1.0]),
        lambda a: torch.tensor(a.size(0) ** 2.0),
    ],
)
def test_tensors_of_open_sizes_follow_the_sizes(function):
    graph, x = make_fx(function, tracing_mode="symbolic")(torch.randn(4)), torch.randn(7)
    made, wanted = graph(x), function(x)
    assert made.dtype is wanted.dtype and torch.allclose(made, wanted)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.functional.dropout2d(x.view(-1, 3, 2, 2)),
        lambda x: nn.functional.embedding_bag(torch.tensor([[0, 1], [2, 2]]), x),
        lambda x: nn.functional.dropout(x),
    ],
)
def test_calls_that_make_tensors_stay_on_the_device_of_fake_ones(function, mode):
    graph, x = make_fx(function, tracing_mode=mode)(torch.randn(6, 12)), torch.randn(6, 12)
    torch.manual_seed(3)
    made = graph(x)
    torch.manual_seed(3)
    assert torch.equal(made, function(x))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_trace_draws_no_random_numbers(requires_grad):
    x = torch.ones(40, requires_grad=requires_grad)
    torch.manual_seed(1)
    wanted = [nn.functional.dropout(x), torch.rand(3)]
    torch.manual_seed(1)
    made = [torch.compile(lambda x: nn.functional.dropout(x), backend="aot_eager", fullgraph=True)(x), torch.rand(3)]
    assert all(torch.equal(a, b) for a, b in zip(made, wanted, strict=True))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.functional.dropout(x),
        lambda x: x.clone().bernoulli_(),
        lambda x: x.clone().normal_(1, 0.1),
        lambda x: x.clone().exponential_(2),
        lambda x: x.clone().geometric_(0.5),
        lambda x: x.clone().cauchy_(),
        lambda x: x.clone().log_normal_(),
        lambda x: x.clone().random_(3),
        lambda x: x.clone().uniform_(1, 2),
    ],
)
def test_draws_in_place_are_drawn_without_changes(function):
    graph, x = make_fx(functionalize(function))(torch.rand(6)), torch.rand(6)
    assert not any(name.endswith("_") for name in (each.split(".")[1] for each in targets(graph)))
    torch.manual_seed(2)
    made = graph(x)
    torch.manual_seed(2)
    assert torch.equal(made, function(x))


def test_changes_that_no_mode_sees_are_not_lost():
    graph = make_fx(lambda x: x.clone().fill_diagonal_(2.0))(torch.zeros(3, 3))
    assert graph(torch.ones(3, 3)).tolist() == [[2.0, 1.0, 1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 2.0]]
    with pytest.raises(NotImplementedError, match="fill_diagonal_"):
        make_fx(functionalize(lambda x: x.clone().fill_diagonal_(2.0)))(torch.zeros(3, 3))
