"""make_fx(tracing_mode="fake") of operators whose sizes data decide, and exports of `unique` along a dimension."""

import mica as torch
import pytest
from mica import nn
from mica._functorch.aot_autograd import aot_function
from mica._subclasses import FakeTensorMode
from mica._subclasses.fake_tensor import DataDependentOutputException
from mica.export import Dim, export
from mica.fx.experimental.proxy_tensor import make_fx
from mica.nn import functional as F
from mica.utils._pytree import tree_leaves


class Program(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def assert_same(ours, theirs):
    for a, b in zip(tree_leaves(ours), tree_leaves(theirs), strict=True):
        torch.testing.assert_close(a, b)


GRAPHS = {
    "mask": lambda x: x[x > 0] * 2,
    "two masks": lambda x: torch.cat([x[x > 0], x[x <= 0]]),
    "nonzero": lambda x: x.new_zeros(x.nonzero().shape[0]),
    "item": lambda x: x * x.sum().item(),
    "unique": lambda x: torch.unique(x).shape[0] * x,
    "unique rows": lambda x: torch.unique(x, dim=0, return_counts=True),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_fake_traces_have_sizes_of_data(name):
    graph = make_fx(GRAPHS[name], tracing_mode="fake")(torch.randn(4, 3))
    x = torch.randn(4, 3)
    assert_same(graph(x), GRAPHS[name](x))


def test_a_branch_on_a_value_is_still_refused():
    with pytest.raises(RuntimeError):
        make_fx(lambda x: x if x.sum() > 0 else -x, tracing_mode="fake")(torch.randn(3))


EXPORTS = {
    "unique rows": lambda x: torch.unique(x, dim=0).sum(0) * x.shape[0],
    "unique columns": lambda x: torch.unique(x, dim=1, return_inverse=True, return_counts=True),
    "consecutive": lambda x: torch.unique_consecutive(x) * 2,
    "consecutive with places": lambda x: torch.unique_consecutive(x, return_inverse=True),
    "consecutive rows": lambda x: x.unique_consecutive(dim=0),
    "consecutive rows with counts": lambda x: torch.unique_consecutive(x, dim=0, return_counts=True),
    "at least two dimensions": lambda x: (torch.atleast_1d(x[0]), torch.atleast_2d(x[0]), torch.atleast_3d(x)),
}


@pytest.mark.parametrize("shapes", [None, ({0: Dim.AUTO},)])
@pytest.mark.parametrize("name", EXPORTS)
def test_exports_give_what_the_function_gives(name, shapes):
    program = export(Program(EXPORTS[name]), (torch.randn(4, 2),), dynamic_shapes=shapes)
    x = torch.tensor([[1.0, 2], [3, 4], [1, 2], [1, 2]])
    for made in (program, program.run_decompositions()):
        assert_same(made.module()(x), EXPORTS[name](x))


@pytest.mark.parametrize("hard", [False, True])
def test_gumbel_softmax_is_written_as_operators(hard, tmp_path):
    def function(x):
        return F.gumbel_softmax(x, tau=0.7, hard=hard, dim=0)

    x, weights = torch.randn(3, 4, requires_grad=True), torch.arange(12.0).view(3, 4)
    torch.manual_seed(1)
    theirs = function(x)
    (theirs * weights).sum().backward()
    gradient, x.grad = x.grad, None
    torch.manual_seed(1)
    (aot_function(function, lambda graph, example: graph.forward)(x) * weights).sum().backward()
    torch.testing.assert_close(x.grad, gradient)
    program = export(Program(function), (x,), dynamic_shapes=({0: Dim.DYNAMIC},))
    torch.export.save(program, tmp_path / "program.pt2")
    torch.manual_seed(1)
    torch.testing.assert_close(torch.export.load(tmp_path / "program.pt2").module()(x), theirs)


@pytest.mark.parametrize(
    "repeat",
    [
        lambda x, n: x.repeat_interleave(n, 0, output_size=12),
        lambda x, n: torch.repeat_interleave(x[:, 0], n, output_size=12),
        lambda x, n: torch.repeat_interleave(n, output_size=12),
        lambda x, n: torch.ops.aten.repeat_interleave.Tensor(n, output_size=12),
        lambda x, n: x.repeat_interleave(n, 0, output_size=4 * x.shape[0]),
    ],
)
def test_a_program_says_how_many_repetitions_there_are(repeat):
    x, n, graphs = torch.randn(3, 2), torch.tensor([2, 4, 6]), []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph

    function = lambda x, n: repeat(x * 2, n) + 1  # noqa: E731
    with FakeTensorMode() as mode:
        made = function(mode.from_tensor(x), mode.from_tensor(n))
    assert made.shape == function(x, n).shape
    assert torch.equal(torch.compile(function, backend=keep, fullgraph=True)(x, n), function(x, n))
    assert len(graphs) == 1 and any("repeat_interleave" in node.name for node in graphs[0].graph.nodes)


def test_lengths_and_places_in_fake_tensors_are_values():
    x, lengths = torch.randn(5, 2, 6), torch.tensor([3, 2])
    with FakeTensorMode() as mode:
        x, lengths = mode.from_tensor(x), mode.from_tensor(lengths)
        with pytest.raises(DataDependentOutputException):
            F.ctc_loss(x, torch.ones(2, 3).long(), torch.full((2,), 5), lengths)
        with pytest.raises(DataDependentOutputException):
            torch.tensor_split(x, lengths)
