"""Joint graphs that are cut into a forward and a backward pass: what is kept, and what is computed again."""

import copy

import mica as torch
import pytest
from mica import nn
from mica._functorch.aot_autograd import aot_function, aot_module
from mica._functorch.compilers import default_decompositions, make_boxed_func
from mica._functorch.partitioners import default_partition, min_cut_rematerialization_partition


def graphs_of(f, inputs, partition, **options):
    """(forward, backward) graph of a function whose gradients are those of the function itself."""
    found = []

    def keep(graph, example):
        found.append(graph)
        return make_boxed_func(graph.forward)

    inputs = [x.detach().requires_grad_() for x in inputs]
    aot_function(f, keep, partition_fn=partition, **options)(*inputs).sum().backward()
    others = [x.detach().requires_grad_() for x in inputs]
    f(*others).sum().backward()
    torch.testing.assert_close([x.grad for x in inputs], [x.grad for x in others])
    return found


def names_kept(graph, results=1):
    return [node.name for node in graph.graph.output_node().args[0][results:]]


def test_a_chain_of_cheap_operators_is_computed_again():
    f, x = lambda x: x.cos().cos().cos(), torch.randn(3)
    assert names_kept(graphs_of(f, [x], min_cut_rematerialization_partition)[0]) == ["primals_1"]
    assert len(names_kept(graphs_of(f, [x], default_partition)[0])) == 3


def test_a_sum_of_inputs_is_kept_in_their_place():
    def f(a, b, c, d):
        return (a + b + c + d).cos().cos()

    forward, backward = graphs_of(f, [torch.randn(3) for _ in range(4)], min_cut_rematerialization_partition)
    assert names_kept(forward) == ["add_2"]
    assert sum(node.op == "placeholder" for node in backward.graph.nodes) == 2


def test_products_are_not_computed_again():
    def f(x, w):
        return torch.sin(torch.mm(torch.sin(x), w)).sin()

    forward, backward = graphs_of(f, [torch.randn(4, 4), torch.randn(4, 4)], min_cut_rematerialization_partition)
    assert "mm" in names_kept(forward)
    assert "aten.sin.default" in backward.code


def test_pieces_are_made_again_of_the_input():
    def f(x):
        a, b = torch.split(x, 2)
        return a.sin() + b.cos()

    forward, backward = graphs_of(f, [torch.randn(4, 4)], min_cut_rematerialization_partition)
    assert names_kept(forward) == ["primals_1"]
    assert "aten.split.Tensor" in backward.code


def test_small_results_of_reductions_are_kept():
    def f(x):
        return (x.sin() * x.sin().sum()).sin()

    forward, _ = graphs_of(f, [torch.randn(64)], min_cut_rematerialization_partition)
    assert "sum_1" in names_kept(forward)


@pytest.mark.parametrize("partition", [default_partition, min_cut_rematerialization_partition])
def test_a_network_learns_alike(partition):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.3), nn.BatchNorm1d(16),
                          nn.Linear(16, 4), nn.LogSoftmax(1))  # fmt: skip
    module, x = copy.deepcopy(plain), torch.randn(5, 8)
    compiled = aot_module(module, lambda g, i: make_boxed_func(g.forward), partition_fn=partition)
    for each in (plain, compiled):
        torch.manual_seed(1)
        (each(x) * torch.arange(4.0)).sum().backward()
    torch.testing.assert_close([p.grad for p in module.parameters()], [p.grad for p in plain.parameters()])
    torch.testing.assert_close(list(module.buffers()), list(plain.buffers()))


def test_the_table_that_compilers_of_functorch_begin_with():
    forward, _ = graphs_of(
        lambda x: nn.functional.hardswish(x), [torch.randn(3)], default_partition, decompositions=default_decompositions
    )
    assert "hardswish" not in forward.code
