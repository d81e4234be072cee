"""make_fx with open sizes: sizes that have to be multiples stay open, and those that have to be numbers are looked at."""

import mica as torch
import pytest
from mica.fx.experimental.proxy_tensor import make_fx
from mica.nn import functional as F


def counted(*sizes):
    return torch.arange(float(torch.Size(sizes).numel())).reshape(sizes)


PROGRAMS = {
    "pairs": (lambda x: x.view(-1, 2) * 2, (4, 3), (6, 5)),
    "pairs of rows": (lambda x: x.view(-1, 2, 3), (4, 3), (10, 3)),
    "a range": (lambda x: torch.arange(x.shape[0]).view(-1, 2) * 1.0, (4, 3), (6, 3)),
    "halves": (lambda x: x[: x.shape[0] // 2] + x[x.shape[0] // 2 :], (4, 3), (8, 5)),
    "half as many": (lambda x: x.reshape(x.shape[0] // 2, -1), (4, 3), (6, 3)),
    "heads": (lambda x: x.view(*x.shape[:2], 2, x.shape[2] // 2).transpose(1, 2), (2, 3, 8), (3, 5, 12)),
    "patches": (
        lambda x: x.reshape(x.shape[0], 3, x.shape[2] // 4, 4, x.shape[3] // 4, 4).permute(0, 2, 4, 1, 3, 5).flatten(3),
        (2, 3, 8, 12), (4, 3, 16, 8),
    ),
    "groups": (lambda x: F.group_norm(x, 2), (2, 4, 6), (2, 8, 6)),
    "twice": (lambda x: x.view(-1, 2).sum(1).view(-1, 3), (6, 4), (12, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_multiples_stay_open(name):
    program, example, other = PROGRAMS[name]
    graph = make_fx(program, tracing_mode="symbolic")(counted(*example))
    for sizes in (example, other):
        torch.testing.assert_close(graph(counted(*sizes)), program(counted(*sizes)))


def test_a_whole_number_that_is_a_multiple():
    graph = make_fx(lambda x, n: x.view(n // 2, 2, -1) + n, tracing_mode="symbolic")(counted(6, 2), 6)
    assert torch.equal(graph(counted(10, 2), 10), counted(10, 2).view(5, 2, 2) + 10)


@pytest.mark.parametrize("program", [lambda x: torch.arange(x.shape[0]) + torch.arange(4)])
def test_a_graph_of_one_size_refuses_others(program):
    graph = make_fx(program, tracing_mode="symbolic")(counted(4, 3))
    assert torch.equal(graph(counted(4, 7)), program(counted(4, 7)))
    with pytest.raises(RuntimeError, match="size 0 of input 0 to be 4, as in the example, but it is 6"):
        graph(counted(6, 3))
    numbered = make_fx(lambda x, n: x.view(-1, n // 2), tracing_mode="symbolic")(counted(12), 4)
    with pytest.raises(RuntimeError, match="input 1 to be 4, as in the example, but it is 6"):
        numbered(counted(12), 6)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_convolution_with_steps_whose_weight_is_an_argument(dims):
    def function(x, weight):
        convolution = [F.conv1d, F.conv2d, F.conv3d][dims - 1]
        return F.group_norm(convolution(x, weight, stride=2, padding=1), 4)

    x, other = torch.randn(5, 4, *(12, 14, 10)[:dims]), torch.randn(7, 4, *(17, 19, 15)[:dims])
    weight = torch.randn(16, 4, *[3] * dims)
    graph = make_fx(function, tracing_mode="symbolic")(x, weight)
    assert torch.equal(graph(other, weight), function(other, weight))
    with pytest.raises(RuntimeError, match="needs size 2 of input 1 to be 3"):
        graph(other, torch.randn(16, 4, *[5] * dims))
