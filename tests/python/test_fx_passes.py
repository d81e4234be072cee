"""Passes over graphs: patterns, constants, cuts, common subexpressions."""

import mica as torch
import pytest
from mica import fx, nn
from mica.fx import symbolic_trace
from mica.fx.experimental.const_fold import split_const_subgraphs
from mica.fx.experimental.proxy_tensor import make_fx
from mica.fx.operator_schemas import get_signature_for_torch_op
from mica.fx.passes.dialect.common.cse_pass import CSEPass
from mica.fx.passes.fake_tensor_prop import FakeTensorProp
from mica.fx.passes.infra.pass_base import PassBase, PassResult
from mica.fx.passes.infra.pass_manager import PassManager
from mica.fx.passes.split_module import split_module
from mica.fx.subgraph_rewriter import replace_pattern, replace_pattern_with_filters


def test_patterns_with_several_results_and_filters():
    def f(x, y):
        return torch.relu(x + y) * torch.sin(x + y), torch.relu(y + x)

    def pattern(a, b):
        s = a + b
        return torch.relu(s), torch.sin(s)

    def replacement(a, b):
        return a - b, a * b

    traced = symbolic_trace(f)
    assert len(replace_pattern(traced, pattern, replacement)) == 0, "x + y is computed twice: no part has both"
    g = symbolic_trace(lambda x, y: pattern(x, y)[0] * pattern(x * 2, y)[1] + sum(pattern(y, y)))
    assert len(replace_pattern(g, pattern, replacement)) == 3
    x, y = torch.randn(3), torch.randn(3)
    assert torch.allclose(g(x, y), (x - y) * (x * 2 * y) + (y - y) + y * y)

    h = symbolic_trace(lambda x: torch.relu(torch.relu(x) + 1) * 2 + torch.relu(x + 3))
    only = [lambda match, graph, pattern: match.placeholder_nodes[0].name == "x"]
    made = replace_pattern_with_filters(h, lambda a: torch.relu(a), lambda a: torch.abs(a), only)
    assert len(made) == 1 and made[0].replacements[0].target is torch.abs
    assert torch.allclose(h(-x), torch.relu(x.abs() + 1) * 2 + torch.relu(-x + 3))
    again = symbolic_trace(lambda x: (x + 1) * (x + 2))
    assert len(replace_pattern_with_filters(again, lambda a: a + 1, lambda a: a - 1, ignore_literals=True)) == 2


def test_chained_matches_are_replaced():
    traced = symbolic_trace(lambda x: torch.neg(torch.neg(torch.neg(x))))
    assert len(replace_pattern(traced, lambda a: torch.neg(a), lambda a: a * 2)) == 3
    assert traced(torch.ones(1)).item() == 8


def test_constants_are_folded_once():
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.full((2,), 3.0))

        def forward(self, x):
            return x * (self.a + self.b) - self.b.exp() + self.a

    module = Sums()
    folded = split_const_subgraphs(module)
    calls = [node.name for node in folded.graph.nodes if node.op == "call_function"]
    assert calls == ["mul", "sub", "add_1"] or len(calls) == 3
    x = torch.randn(2)
    assert torch.allclose(folded(x), module(x)) and folded.has_folding_been_run
    assert split_const_subgraphs(nn.ReLU()).const_subgraph_module is None


def test_a_graph_is_cut_into_modules():
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    traced = symbolic_trace(lambda x, y: ((x @ y).relu() + x, y * 2))
    parts = iter([0, 0, 1, 1])
    cut = split_module(traced, traced, lambda node: next(parts))
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    assert [name for name, _ in cut.named_children()] == ["submod_0", "submod_1"]
    assert all(torch.equal(a, b) for a, b in zip(cut(x, y), traced(x, y), strict=True))
    numbers = {"_0": 0, "_1": 0, "_2": 1}
    cut = split_module(symbolic_trace(module), module, lambda node: numbers[node.name])
    z = torch.randn(2, 4)
    assert torch.equal(cut(z), module(z))
    back = iter([0, 1, 0])
    with pytest.raises(RuntimeError, match="cycle"):
        traced = symbolic_trace(lambda x: torch.neg(torch.sin(torch.neg(x))))
        split_module(traced, traced, lambda node: next(back))


def test_common_subexpressions_and_managers():
    def f(x):
        return x.cos() + x.cos() + torch.rand_like(x) * 0 + torch.rand_like(x) * 0

    traced = make_fx(f)(torch.randn(3))
    result = PassManager([CSEPass()], steps=3)(traced)
    names = [str(node.target) for node in result.graph_module.graph.nodes]
    assert result.modified and names.count("aten.cos.default") == 1 and names.count("aten.rand_like.default") == 2
    x = torch.randn(3)
    assert torch.allclose(result.graph_module(x), 2 * x.cos())

    class Nothing(PassBase):
        def call(self, graph_module):
            return PassResult(graph_module, False)

    assert not PassManager([Nothing()])(traced).modified


def test_fake_values_of_a_graph():
    traced = symbolic_trace(nn.Sequential(nn.Linear(4, 8), nn.ReLU()))
    FakeTensorProp(traced).propagate(torch.randn(3, 4))
    assert next(iter(reversed(traced.graph.nodes))).meta["val"].shape == (3, 8)


def test_graphs_as_torch_has_them():
    import copy
    import enum

    from mica.fx import Graph, Proxy, Tracer
    from mica.fx.graph import CodeGen

    traced = symbolic_trace(lambda x: x + 1)
    copied = Graph()
    for node in traced.graph.nodes:
        copied.node_copy(node)
    with pytest.raises(RuntimeError, match="does not belong to this Graph"):
        copied.lint()

    class Listed(CodeGen):
        def gen_fn_def(self, free_vars, maybe_return_annotation):
            return f"def forward(self, args){maybe_return_annotation}:\n    {', '.join(free_vars)}, = args"

    traced.graph.set_codegen(Listed())
    traced.recompile()
    assert traced([torch.ones(1)]).item() == 2

    class Kind(enum.Enum):
        A = 3

    def with_enum(x, kind=Kind.A):
        return x * kind.value

    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(with_enum, (x, Kind.A)))
    assert torch.fx.GraphModule(nn.Module(), graph)(torch.ones(1)).item() == 3
    tracer = Tracer()
    tracer.graph = Graph()
    assert copy.deepcopy(Proxy(tracer.graph.placeholder("x"), tracer)).tracer is not tracer


def test_common_subexpressions_leave_the_module_that_came():
    traced = make_fx(lambda x: x.sum(1) + x.sum(1))(torch.ones(2, 2))
    result = CSEPass()(traced)
    assert result.modified and len(traced.graph.nodes) == 5 and len(result.graph_module.graph.nodes) == 4
    assert result.graph_module(torch.ones(2, 2)).tolist() == [4, 4] == traced(torch.ones(2, 2)).tolist()
    assert not CSEPass()(result.graph_module).modified


@fx.wrap
def plus_one(x):
    return x + 1


def test_wrapped_functions_stay_whole_when_a_graph_is_traced_again():
    class Outer(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) * 2

    traced = symbolic_trace(lambda x: plus_one(x))
    for again in (symbolic_trace(traced), symbolic_trace(Outer(traced))):
        assert plus_one in [node.target for node in again.graph.nodes]
    assert symbolic_trace(Outer(traced))(3) == 8 and plus_one(1) == 2


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (torch.linalg.norm, ["input", "ord", "dim", "keepdim", "dtype"]),
        (torch.linalg.lu_solve, ["LU", "pivots", "B", "left", "adjoint"]),
        (torch.lu_solve, ["input", "LU_data", "LU_pivots"]),
        (torch.fft.fft, ["input", "n", "dim", "norm"]),
        (torch.linalg.multi_dot, ["tensors"]),
    ],
)
def test_signatures_of_functions_in_modules_are_their_own(function, names):
    assert names in [list(signature.parameters) for signature in get_signature_for_torch_op(function)]


def test_what_a_backend_takes():
    from mica.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from mica.fx.passes.operator_support import OperatorSupport, OpSupports, any_chain, chain, create_op_support

    def f(a, b):
        first = (a + b) * 2
        outside = first.relu()
        return (outside + first) * b, a - b

    class Arithmetic(OperatorSupport):
        def is_node_supported(self, submodules, node):
            return node.op == "call_function"

    traced = fx.symbolic_trace(f)
    partitioner = CapabilityBasedPartitioner(traced, Arithmetic())
    partitions = partitioner.propose_partitions()
    # relu lies between the first two and the last two: they cannot be one.
    names = [sorted(node.name for node in each.nodes) for each in partitions]
    assert names == [["add_1", "mul_1", "sub"], ["add", "mul"]]
    fused = partitioner.fuse_partitions(partitions)
    assert [n.target for n in fused.graph.nodes if n.op == "call_module"] == ["fused_1", "fused_0"]
    x, y = torch.tensor([1.0, -3.0]), torch.tensor([2.0, 1.0])
    for ours, theirs in zip(fused(x, y), f(x, y), strict=True):
        assert ours.equal(theirs)

    named = fx.symbolic_trace(lambda a: torch.relu(a) + 1)
    relu, add = (n for n in named.graph.nodes if n.op == "call_function")
    by_name = OperatorSupport({"torch.relu": None, "_operator.add": None})
    assert by_name.is_node_supported({}, relu) and by_name.is_node_supported({}, add)
    assert not OperatorSupport({}).is_node_supported({}, relu)
    no_relu = OpSupports.decline_if_node_in_names({"relu"})
    assert not chain(by_name, no_relu).is_node_supported({}, relu) and any_chain(by_name, no_relu).is_node_supported(
        {}, relu
    )
    assert create_op_support(lambda modules, node: node is add).is_node_supported({}, add)
    fx.passes.shape_prop.ShapeProp(named).propagate(x)
    for dtypes, answer in (([torch.float32], True), ([torch.int64], False)):
        typed = OperatorSupport({"torch.relu": ((dtypes,), {})})
        assert typed.is_node_supported({}, relu) is answer
    assert not OpSupports.decline_if_input_dtype(torch.float32).is_node_supported({}, relu)


def test_patterns_that_end_with_the_graph():
    from mica.fx.passes.utils.matcher_utils import SubgraphMatcher

    whole = fx.symbolic_trace(lambda x: (x + 1).relu()).graph
    part = fx.symbolic_trace(lambda x: (x + 1).relu() * 2).graph
    for graph, count in ((whole, 1), (part, 0)):
        assert len(SubgraphMatcher(whole, match_output=True).match(graph)) == count
    # An input of the part must not be computed by the part itself.
    pattern = fx.symbolic_trace(lambda a, c: (a.neg(), a.neg() * c)).graph
    assert SubgraphMatcher(pattern).match(fx.symbolic_trace(lambda x: x.sin()).graph) == []
    two = fx.symbolic_trace(lambda a, b: (a.relu(), b.relu())).graph
    graph = fx.symbolic_trace(lambda x, y, z: (x.relu(), y.relu(), z.relu())).graph
    assert len(SubgraphMatcher(two).match(graph)) == 1
    assert len(SubgraphMatcher(two, remove_overlapping_matches=False).match(graph)) == 6


def test_defaults_are_matched():
    from mica.fx.passes.utils.matcher_utils import SubgraphMatcher

    total = torch.ops.aten.sum.dim_IntList
    pattern = fx.symbolic_trace(lambda x, dim, keep: total(x, dim, keep)).graph
    assert len(SubgraphMatcher(pattern).match(fx.symbolic_trace(lambda x: total(x, [0])).graph)) == 1


def test_layers_are_put_together_for_evaluation():
    from mica.fx.experimental.optimization import extract_subgraph, fuse, remove_dropout

    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(), nn.Flatten(), nn.Linear(8, 3), nn.BatchNorm1d(3)
    )
    x = torch.randn(5, 1, 4, 4)
    for _ in range(3):
        model(x)
    model.eval()
    expected = model(x)
    fused = fuse(model)
    torch.testing.assert_close(fused(x), expected, rtol=1e-4, atol=1e-5)
    assert not any("BatchNorm" in type(each).__name__ for each in fused.modules()) and isinstance(
        model[1], nn.BatchNorm2d
    )
    model.train()
    assert not any(isinstance(each, nn.Dropout) for each in remove_dropout(model).modules())
    with pytest.raises(AssertionError):
        fuse(model)
    traced = symbolic_trace(lambda x, y: (x + y) * 2 - y)
    x, y, add, mul, *_ = traced.graph.nodes
    assert extract_subgraph(traced, [add, mul], [x, y], [mul])(1, 2) == [6]


def test_what_is_made_of_nothing_is_folded_unless_it_is_drawn():
    def folded(make):
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.output(
            graph.call_function(
                torch.add, (x, graph.call_function(make, ((2,), *((3.0,) if make is torch.full else ()))))
            )
        )
        return split_const_subgraphs(fx.GraphModule({}, graph))

    module = folded(torch.full)
    assert module.const_subgraph_module is not None
    assert module(torch.ones(2)).tolist() == [4, 4]
    assert folded(torch.rand).const_subgraph_module is None


def test_modules_are_folded_unless_something_in_them_is_drawn():
    def folded(inner):
        graph = fx.Graph()
        graph.output(graph.call_function(torch.neg, (graph.call_module("sub"),)))
        return split_const_subgraphs(fx.GraphModule({"sub": inner}, graph))

    def of(function, *args):
        graph = fx.Graph()
        graph.output(graph.call_function(function, args))
        return fx.GraphModule({}, graph)

    module = folded(of(torch.full, (2,), 3.0))
    assert module.const_subgraph_module is not None
    assert module().tolist() == [-3, -3]
    assert folded(of(torch.rand, (2,))).const_subgraph_module is None
