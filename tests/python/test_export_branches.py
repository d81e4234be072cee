"""Numbers that the branches of torch.cond return: those that differ are decided by the condition, where the graph runs."""

import mica as torch
import pytest
from mica import nn
from mica.export import export
from mica.fx.experimental.proxy_tensor import make_fx


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


X = torch.ones(3, 3) * torch.arange(3.0)[:, None]

FUNCTIONS = {
    "constants": lambda x: x[torch.cond(x.sum() > 3, lambda: 0, lambda: 1, ())],
    "equal constants": lambda x: x[torch.cond(x.sum() > 3, lambda: 2, lambda: 2, ())],
    "beside a tensor": lambda x: torch.mul(*torch.cond(x.sum() > 3, lambda x: (x + 1, x.shape[0]), lambda x: (x - 1, 7), (x,))),
    "of data": lambda x: torch.cond(x.sum() > 3, lambda x: x.sum().int().item(), lambda x: 7, (x,)) * x,
    "as a size": lambda x: torch.zeros(torch.cond(x.sum() > 3, lambda: 4, lambda: 2, ())),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_follow_the_condition(name):
    function = FUNCTIONS[name]
    program = export(Calls(function), (X,))
    for module in (program.module(), program.run_decompositions().module()):
        for x in (X, -X):
            assert torch.equal(module(x), function(x))


def test_what_is_known_of_the_number_is_asserted():
    code = export(Calls(FUNCTIONS["constants"]), (X,)).graph_module.code
    assert "expression u0 >= 0 on node" in code and "expression u0 <= 1 on node" in code


def test_other_values_have_to_be_equal():
    for first, second in ((1.0, 2.0), (True, False)):
        with pytest.raises(RuntimeError, match="only whole numbers and tensors may differ"):
            export(Calls(lambda x, a=first, b=second: torch.cond(x.sum() > 3, lambda: a, lambda: b, ()) * x), (X,))
    assert torch.equal(
        export(Calls(lambda x: torch.cond(x.sum() > 3, lambda: 1.5, lambda: 1.5, ()) * x), (X,)).module()(X), X * 1.5
    )


def test_graphs_without_open_sizes_refuse_them():
    with pytest.raises(
        NotImplementedError, match="branches return different whole numbers, and the graph is made without open"
    ):
        make_fx(FUNCTIONS["constants"])(X)
    graph = make_fx(FUNCTIONS["constants"], tracing_mode="symbolic")(X)
    assert torch.equal(graph(X), FUNCTIONS["constants"](X)) and torch.equal(graph(-X), FUNCTIONS["constants"](-X))
