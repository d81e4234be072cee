"""How many elements an operator takes, where that is open: topk, kthvalue and multinomial of numbers of data and of sizes."""

import mica as torch
import pytest
from mica import nn
from mica._higher_order_ops.while_loop import while_loop
from mica.export import Dim, export
from mica.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


N = torch.tensor
X, M = torch.randn(10), torch.randn(10, 4)

# name: (function, tensor, numbers, refused numbers and what is said)
COUNTS = {
    "topk": (lambda x, n: (x.topk(n.item())[0] + 1, x.topk(n.item()).indices), X, (3, 5, 0, 10), [(11, "u0 <= 10")]),
    "topk of rows": (lambda x, n: x.topk(n.item(), 0)[0] * torch.arange(4.0), M, (3, 7), [(-1, "u0 >= 0")]),
    "the least of two": (lambda x, n: x.topk(min(n.item(), 7))[0], X, (3, 7, 40), []),
    "kthvalue": (lambda x, n: x.kthvalue(n.item())[0], X, (3, 10), [(11, "u0 <= 10"), (0, "u0 >= 1")]),
    "kept": (lambda x, n: x.kthvalue(n.item(), 1, keepdim=True).values + x, M, (3, 1), []),
    "multinomial": (lambda x, n: torch.multinomial(x.abs(), n.item()) * 0, X, (3, 10), [(11, "cannot sample")]),
    "an image": (lambda x, n: nn.functional.interpolate(x[None, None], size=n.item()), X, (3, 7), []),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_counts_that_only_data_decide(name):
    function, x, numbers, refused = COUNTS[name]
    program = export(Calls(function), (x, N(numbers[0])))
    for module in (program.module(), program.run_decompositions().module()):
        for number in numbers:
            ours, theirs = (torch.utils._pytree.tree_leaves(f(x, N(number))) for f in (module, function))
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        for number, text in refused:
            with pytest.raises(RuntimeError) as error:
                module(x, N(number))
            assert text in str(error.value)


@pytest.mark.parametrize("turned", [False, True])
def test_counts_that_are_sizes(turned):
    def function(x, y):
        x, y = (y, x) if turned else (x, y)
        return y.topk(x.shape[0])[0]

    def pair(few, many):
        return (torch.randn(many), torch.randn(few)) if turned else (torch.randn(few), torch.randn(many))

    module = export(Calls(function), pair(3, 10), dynamic_shapes=({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})).module()
    for few, many in ((4, 9), (6, 6), (2, 30)):
        args = pair(few, many)
        assert torch.equal(module(*args), function(*args))
    few, many = ("y", "x") if turned else ("x", "y")
    with pytest.raises(AssertionError) as error:
        module(*pair(8, 7))
    assert str(error.value) == f"Guard failed: {few}.size()[0] <= {many}.size()[0]"


@pytest.mark.parametrize("ask", [lambda x, n: x.diagonal(n).shape[0], lambda x, n: torch.diag(x[0], n).shape[0]])
def test_places_of_diagonals_are_refused(ask):
    """How long the diagonal is depends on the sign of the number, and on how large it is."""
    with pytest.raises(GuardOnDataDependentSymNode, match="Could not extract specialized integer"):
        export(Calls(lambda x, n: torch.zeros(ask(x, n.item()))), (M, N(1)))


def test_a_counter_that_the_program_makes_is_asked_for_its_number():
    def sums(x, y):
        def step(i, out, y):
            place = i.item()
            torch._check(place >= 0)
            torch._check(place < x.size(0))
            y, out = x[place] + y, out.clone()
            out[place] = y
            return i + 1, out, y

        return while_loop(lambda i, out, y: i < out.size(0), step, [N(0), torch.zeros_like(x), y])[1]

    module = export(Calls(sums), (M, torch.zeros(4))).module()
    assert torch.allclose(module(M + 1, torch.ones(4)), (M + 1).cumsum(0) + 1)
