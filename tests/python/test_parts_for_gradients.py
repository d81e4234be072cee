"""make_fx of gradients through what the engine computes in one piece."""

import mica as torch
import pytest
from mica import nn
from mica.fx.experimental.proxy_tensor import make_fx

LAYERS = {
    "lstm": (nn.LSTM(3, 4), (5, 2, 3)),
    "lstm of one sequence": (nn.LSTM(3, 4), (5, 3)),
    "lstm that projects": (nn.LSTM(3, 4, 2, proj_size=2, batch_first=True, bidirectional=True), (2, 5, 3)),
    "lstm without biases": (nn.LSTM(3, 4, 2, bias=False, batch_first=True), (2, 5, 3)),
    "gru": (nn.GRU(3, 4, 2, bidirectional=True), (5, 2, 3)),
    "tanh": (nn.RNN(3, 4, bidirectional=True), (5, 2, 3)),
    "relu": (nn.RNN(3, 4, nonlinearity="relu", bias=False), (5, 2, 3)),
    "convolution": (nn.Conv2d(3, 2, 3, padding=1, padding_mode="circular"), (2, 3, 5, 5)),
    **{f"padding by {pad}": (nn.CircularPad1d(pad), (2, 3, 5)) for pad in ((1, 1), (2, 0), (-1, 2), (2, -1), (5, 5))},
    "padding of volumes": (nn.CircularPad3d((1, 2, 2, 1, 0, 1)), (1, 2, 5, 4, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_in_the_graph(name):
    layer, shape = LAYERS[name]

    def gradients(x):
        x = x.detach().requires_grad_()
        result = layer(x)
        values = torch.utils._pytree.tree_leaves(result)
        return torch.autograd.grad(sum(value.square().sum() for value in values), [x, *layer.parameters()])

    graph = make_fx(gradients)(torch.randn(shape))
    other = torch.randn(shape)
    for given, wanted in zip(graph(other), gradients(other), strict=True):
        assert torch.allclose(given, wanted, atol=1e-5)


def test_padding_that_wraps_around_twice_is_refused_as_ever():
    with pytest.raises(RuntimeError, match="wrapping around more than once"):
        make_fx(lambda x: nn.functional.pad(x, (6, 0), mode="circular"))(torch.randn(2, 3, 5, requires_grad=True))


def test_layers_that_drop_elements_between_them_are_refused():
    layer = nn.LSTM(3, 4, 2, dropout=0.5)

    def gradients(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(layer(x)[0].sum(), x)

    with pytest.raises(NotImplementedError, match="a backward pass computes with a tensor"):
        make_fx(gradients)(torch.randn(5, 2, 3))
