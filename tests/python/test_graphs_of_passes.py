"""make_fx of gradients: the operators of backward passes are torch's, and the graph computes what the function does."""

import json
import sys
from pathlib import Path

import mica as torch
import pytest
from mica import nn
from mica._functorch.aot_autograd import aot_module
from mica.fx.experimental.proxy_tensor import make_fx
from mica.nn import functional as F
from mica.utils._python_dispatch import TorchDispatchMode

RECORDED = Path(__file__).parents[1] / "recorded"
sys.path.append(str(RECORDED))
from record_passes import NAMES, gradients, lines  # noqa: E402

CASES = json.loads((RECORDED / "passes.json").read_text())


# The same operators here, in another order or with arguments that say the same otherwise.
OTHERWISE = {"adaptive_avg_pool1d", "adaptive_max_pool1d", "attention", "avg_pool1d", "convolution", "group_norm",
             "l1_loss", "max_pool1d", "prelu"}  # fmt: skip


def operators(text):
    """Those of the backward pass."""
    called = {line.split(" = ")[1].partition("(")[0] for line in text}
    return {name for name in called if "backward" in name}


@pytest.mark.parametrize("name", CASES)
def test_a_graph_has_the_nodes_of_torchs(name):
    case = CASES[name]
    function = gradients(torch, case["text"])
    upstream, given = torch.randn(case["upstream"]), [torch.randn(size) for size in case["sizes"]]
    made = make_fx(function)(upstream, *[each.clone() for each in given])
    if name in OTHERWISE:
        assert operators(lines(made.graph)) == operators(case["graph"])
    else:
        assert lines(made.graph) == case["graph"]


def drawn(case):
    return torch.randn(case["upstream"]), [torch.randn(size) for size in case["sizes"]]


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("name", CASES)
def test_a_graph_computes_gradients(name, mode):
    function = gradients(torch, CASES[name]["text"])
    upstream, given = drawn(CASES[name])
    made = make_fx(function, tracing_mode=mode)(upstream, *given)
    upstream, given = drawn(CASES[name])
    found, wanted = made(upstream, *[each.clone() for each in given]), function(upstream, *given)
    for one, two in zip(found, wanted, strict=True):
        assert torch.allclose(one, two, 1e-4, 1e-5)


# Five open sizes are more than the numbers of a world can be multiplied to.
@pytest.mark.parametrize("name", [name for name in CASES if not name.endswith("3d")])
def test_a_graph_with_open_sizes_computes_gradients(name):
    def function(*given):
        given = [each.requires_grad_() for each in given]
        space = {"torch": torch, "F": F, **dict(zip(NAMES, given, strict=False))}
        return torch.autograd.grad(eval(CASES[name]["text"], space).pow(2).sum(), given, allow_unused=True)

    _, given = drawn(CASES[name])
    made = make_fx(function, tracing_mode="symbolic")(*given)
    _, given = drawn(CASES[name])
    for one, two in zip(made(*[each.clone() for each in given]), function(*given), strict=True):
        assert torch.allclose(one, two, 1e-3, 1e-4)


def test_gradients_of_gradients():
    """A derivative that is one node is differentiated as what it is made of."""
    functions = {
        "softmax": lambda x: F.softmax(x, -1),
        "layer_norm": lambda x: F.layer_norm(x, (4,)),
        "group_norm": lambda x: F.group_norm(x.view(1, 4, 3), 2),
        "mse": lambda x: F.mse_loss(x, x.flip(0).detach()),
        "max_pool": lambda x: F.max_pool2d(x[None, None] ** 3, 2),
        "silu": F.silu,
        "elu": F.elu,
        "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    }
    for name, function in functions.items():

        def twice(x, function=function):
            x = x.detach().requires_grad_()
            value = function(x)
            (first,) = torch.autograd.grad((value * value).sum(), x, create_graph=True)
            return torch.autograd.grad((first * first).sum(), x)[0]

        x, other = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
        graph = make_fx(twice)(x)
        assert torch.allclose(graph(other), twice(other)), name


ANGLES = {
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y),
    "hinge_embedding_loss": lambda x, y: F.hinge_embedding_loss(x, (y > 0) * 2 - 1),
    "cosine_embedding_loss": lambda x, y: F.cosine_embedding_loss(x, y, torch.tensor([1, -1, 1])),
}


@pytest.mark.parametrize(("name", "mode"), [("cosine_similarity", "real"), ("cosine_similarity", "fake"),
                                            ("cosine_embedding_loss", "real"), ("hinge_embedding_loss", "real")])  # fmt: skip
def test_losses_of_angles_and_margins(name, mode):
    def function(x, y):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(ANGLES[name](x, y).pow(2).sum(), x)[0]

    made = make_fx(function, tracing_mode=mode)(torch.randn(3, 4), torch.randn(3, 4))
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    torch.testing.assert_close(made(x, y), function(x, y))


def test_a_pass_that_no_mode_sees_is_refused():
    layer = torch.nn.GRU(4, 3, num_layers=2, dropout=0.5)

    def gradient(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(layer(x)[0].sum(), x)[0]

    with pytest.raises(NotImplementedError, match="a backward pass computes with a tensor that no operator was seen"):
        make_fx(gradient)(torch.randn(5, 2, 4))


def test_a_mode_sees_what_a_pass_calls():
    class Log(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.randn(3, 4, requires_grad=True)
    with Log() as log:
        F.softmax(x, -1)[:, 0].sum().backward()
    assert log.seen == [
        "aten._softmax.default", "aten.detach.default", "aten.select.int", "aten.sum.default", "aten.ones_like.default",
        "aten.expand.default", "aten.select_backward.default", "aten.detach.default", "aten._softmax_backward_data.default",
    ]  # fmt: skip
    wanted = torch.autograd.grad(F.softmax(x, -1)[:, 0].sum(), x)[0]
    assert torch.allclose(x.grad, wanted)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.side, self.pool, self.head = nn.Conv2d(4, 8, 1), nn.MaxPool2d(3, 2, 1), nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu_(self.norm(self.first(x)) + self.side(x))
        return self.head(F.adaptive_avg_pool2d(self.pool(x), 1).flatten(1))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm, self.projection = nn.Embedding(10, 16), nn.LayerNorm(16), nn.Linear(16, 48)
        self.tail = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, ids):
        x = self.table(ids)
        q, k, v = self.projection(self.norm(x)).view(2, 5, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 5, 16)
        return F.log_softmax(x + self.tail(x), -1)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.conv, self.time = nn.GroupNorm(2, 4), nn.Conv2d(4, 8, 3, padding=1), nn.Linear(4, 8)
        self.down, self.up, self.join = nn.Conv2d(8, 8, 3, 2, 1), nn.Upsample(scale_factor=2), nn.Conv2d(16, 4, 1)

    def forward(self, x):
        h = self.conv(F.silu(self.norm(x))) + self.time(F.silu(x.mean((2, 3))))[:, :, None, None]
        return self.join(torch.cat([self.up(self.down(h)), h], 1)) + x


BLOCKS = {
    Residual: ["native_batch_norm_backward", "max_pool2d_with_indices_backward", "convolution_backward"],
    Transformer: [
        "native_layer_norm_backward",
        "gelu_backward",
        "embedding_dense_backward",
        "_log_softmax_backward_data",
    ],
    UNet: ["native_group_norm_backward", "silu_backward", "upsample_nearest2d_backward", "convolution_backward"],
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_aot_graphs_of_blocks(kind):
    torch.manual_seed(0)
    block, graphs = kind(), []
    plain = kind()
    plain.load_state_dict(block.state_dict())

    def keep(graph, example):
        graphs.append(graph)
        return graph

    compiled = aot_module(block, keep, keep)
    for _ in range(2):
        x = torch.randint(0, 10, (2, 5)) if kind is Transformer else torch.randn(2, 4, 8, 8)
        found, wanted = compiled(x), plain(x)
        assert torch.allclose(found, wanted, 1e-4, 1e-5)
        found.square().sum().backward()
        wanted.square().sum().backward()
    for (name, one), two in zip(block.named_parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one.grad, two.grad, 1e-3, 1e-3), name
    for (name, one), two in zip(block.named_buffers(), plain.buffers(), strict=True):
        assert torch.allclose(one, two), name
    assert len(graphs) == 2
    called = {
        node.target.overloadpacket.__name__ for node in graphs[1].graph.nodes if hasattr(node.target, "overloadpacket")
    }
    assert called >= set(BLOCKS[kind])


@pytest.mark.parametrize("sizes", [(3, 7), (7,)])
def test_covariances_of_open_sizes(sizes):
    for function in (torch.cov, lambda x: torch.cov(x, correction=0), torch.corrcoef):
        graph = make_fx(function, tracing_mode="symbolic")(torch.randn(sizes))
        x = torch.randn(*sizes[:-1], 11)
        assert torch.allclose(graph(x), function(x), 1e-4, 1e-5)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_inputs_that_overlap_keep_their_strides(requires_grad):
    def windows(tensor):
        return tensor.as_strided((2, 5, 4, 2), (24, 4, 2, 1))

    x, y = torch.randn(2, 12, 2, requires_grad=requires_grad), torch.randn(2, 12, 2)
    products = torch.compile(lambda a, b: torch.einsum("bcxd,bcyd->bcxy", a, b), backend="aot_eager", fullgraph=True)
    made = products(windows(x), windows(y))
    assert torch.equal(made, torch.einsum("bcxd,bcyd->bcxy", windows(x), windows(y)))


def test_functions_without_setup_context():
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    def function(x):
        return Rounded.apply(x * 2).sum()

    x = torch.randn(4, requires_grad=True)
    compiled = torch.compile(function, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(compiled(x), function(x))
    compiled(x).backward()
    assert x.grad.tolist() == [6, 6, 6, 6]
    with pytest.raises(RuntimeError, match="must override the setup_context staticmethod"):
        torch.func.functionalize(function)(x)
