"""Operators of a program's own with open sizes: their fake functions get them as a program does, and make tensors of them."""

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export
from mica.fx.experimental.proxy_tensor import make_fx


@torch.library.custom_op("own_operators::product", mutates_args=())
def product(x: torch.Tensor, weight: torch.Tensor, times: int) -> torch.Tensor:
    return (x @ weight).repeat(times, 1)


@product.register_fake
def _(x, weight, times):
    assert x.size(1) == weight.size(0), f"{tuple(x.shape)} and {tuple(weight.shape)}"
    return torch.empty(x.size(0) * times, weight.size(1), device=x.device, dtype=x.dtype)


class Uses(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.randn(4, 6))

    def forward(self, x):
        return self.function(x, self.weight)


# name: (function, open axes)
USES = {
    "rows": (lambda x, w: product(x.reshape(-1, 4), w, 2) + 1, (0, 1)),
    "a size of its result": (lambda x, w: product(x[:, 0], w, 3).new_ones(product(x[:, 0], w, 3).shape[0]), (0,)),
    "a size as an argument": (lambda x, w: product(x[0], w, x.shape[0]), (0, 1)),
    "chosen rows": (lambda x, w: product(x.reshape(-1, 4)[torch.arange(x.shape[0]).repeat(2)], w, 1).view(2, -1, 6), (0, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_sizes_stay_open(name):
    function, axes = USES[name]
    module = Uses(function)
    program = export(module, (torch.randn(3, 5, 4),), dynamic_shapes=(dict.fromkeys(axes, Dim.DYNAMIC),))
    for each in (program.module(), program.run_decompositions().module()):
        for shape in ((3, 5, 4), (2, 5, 4), (7, 9 if 1 in axes else 5, 4)):
            x = torch.randn(shape)
            assert torch.allclose(each(x), module(x), atol=1e-6)
    graph = make_fx(function, tracing_mode="symbolic")(torch.randn(3, 5, 4), module.weight.detach())
    x = torch.randn(6, 8, 4)
    assert torch.allclose(graph(x, module.weight), module(x), atol=1e-6)


def test_what_the_fake_function_relies_on_is_relied_on():
    module = Uses(lambda x, w: product(x[0], w, 1))
    with pytest.raises(torch._dynamo.exc.UserError, match="your code specialized it to be a constant \\(4\\)"):
        export(module, (torch.randn(3, 5, 4),), dynamic_shapes=({2: Dim("n")},))
