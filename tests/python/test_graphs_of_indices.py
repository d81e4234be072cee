"""Elements that a program sets by places, in graphs of operators: lists, tensors and numbers are the graph's own."""

import mica as torch
import pytest
from mica._functorch.aot_autograd import aot_function
from mica.fx.experimental.proxy_tensor import make_fx


def sets(index, value):
    def program(x, i):
        y = x.clone()
        y[index(i)] = value(x) if callable(value) else value
        return y

    return program


PROGRAMS = {
    "two tensors": sets(lambda i: (i[:2], i[:2]), -1),
    "a tensor and a number": sets(lambda i: (i, 0), 3),
    "columns": sets(lambda i: (slice(None), i), 2.5),
    "two lists": sets(lambda i: ([0, 1], [1, 2]), 3),
    "one list": sets(lambda i: [0, 2], True),
    "a grid": sets(lambda i: (i[:, None], i), lambda x: x[0, 0]),
    "a list that is read": lambda x, i: x[[0, 2]].exp() + x[[0, 2], [1, 1]].sum(),
    "truths in a list": lambda x, i: x[[True, False, True, True]].sin(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_elements_that_are_set_by_places(name):
    function, i = PROGRAMS[name], torch.tensor([0, 2, 3])
    x = torch.randn(4, 4, requires_grad=True)
    theirs = function(x, i)
    compiled = aot_function(function, lambda graph, example: graph.forward)(x, i)
    torch.testing.assert_close(compiled, theirs)
    ours, expected = (torch.autograd.grad(made.sin().sum(), x)[0] for made in (compiled, theirs))
    torch.testing.assert_close(ours, expected)
    for mode in ("real", "fake", "symbolic"):
        graph = make_fx(function, tracing_mode=mode)(torch.randn(4, 4), torch.tensor([1, 0, 2]))
        assert "__setitem__" not in graph.code
        torch.testing.assert_close(graph(x, i), theirs)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, i: x[i.argmax()] * 2,
        lambda x, i: x[i[0]],
        lambda x, i: x[(x > 0).any()],
        lambda x, i: x[None, i.max()],
    ],
)
def test_an_index_by_a_computed_number_is_refused(program):
    """The engine would ask for the number, and the graph would have that of the run."""
    with pytest.raises(RuntimeError, match="trying to get value out of a tracing tensor"):
        make_fx(program)(torch.randn(4), torch.tensor([1, 0, 2]))


def test_a_place_that_a_graph_computes_is_not_kept():
    def program(x, i):
        y = x.clone()
        y[i.argmax()] = 3.0
        return y

    with pytest.raises(RuntimeError, match="trying to get value out of a tracing tensor"):
        make_fx(program)(torch.randn(4), torch.tensor([1, 0, 2]))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_sparse_gradients_of_tables(mode):
    """A COO gradient of a table of rows is an operator of the graph, with torch's arguments."""
    places, offsets = torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 3])

    def bags(w, places, offsets):
        return torch.nn.functional.embedding_bag(places, w, offsets, mode=mode, sparse=True).square().sum()

    def rows(w, places, offsets):
        return torch.nn.functional.embedding(places, w, padding_idx=2, sparse=True).square().sum()

    for function in (bags, rows):
        w, graphs = torch.randn(10, 4, requires_grad=True), []
        compiled = aot_function(function, lambda graph, example, graphs=graphs: graphs.append(graph) or graph)
        for numbers in (places, places.flip(0)):
            (ours,) = torch.autograd.grad(compiled(w, numbers, offsets), w)
            (theirs,) = torch.autograd.grad(function(w, numbers, offsets), w)
            assert ours.layout == theirs.layout == torch.sparse_coo
            torch.testing.assert_close(ours.to_dense(), theirs.to_dense())
        assert "_sparse_coo_tensor_with_dims_and_tensors.default(1, 1, [10, 4]" in graphs[1].code
