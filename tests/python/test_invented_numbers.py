"""Graphs with open sizes have no number in them that was invented for a size while they were made."""

import mica
import pytest
from mica.fx.experimental import _invented_numbers
from mica.fx.experimental.proxy_tensor import make_fx
from mica.fx.experimental.symbolic_shapes import ShapeEnv
from mica.nn import functional as F

WRITTEN = {
    "fft": lambda x: mica.fft.fft(x, n=4, dim=1, norm="ortho").abs(),
    "rfft": lambda x: mica.fft.rfft(x, 8),
    "fft2": lambda x: mica.fft.fft2(x, s=(4, 5), dim=(1, 2)).abs(),
    "fftshift": lambda x: mica.fft.fftshift(x, dim=(1, 2)),
    "ifftshift": lambda x: mica.fft.ifftshift(x),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_numbers_of_sizes_are_computed_by_the_graph(name):
    made = make_fx(WRITTEN[name], tracing_mode="symbolic")(mica.randn(2, 3, 6))
    for size in ((2, 3, 6), (2, 5, 9), (3, 7, 4)):
        x = mica.randn(size)
        assert mica.allclose(made(x), WRITTEN[name](x), atol=1e-5), size


@pytest.mark.parametrize(
    "given",
    [{"mode": "nearest"}, {"mode": "bilinear"}, {"mode": "bilinear", "recompute_scale_factor": True}, {"mode": "area"}],
)
@pytest.mark.parametrize("scale", [0.1, 0.5, 0.7, 1.7, 1.873536229133606, 2.0, (1.3, 0.4)])
def test_sizes_of_scaled_images_follow(scale, given):
    def scaled(x):
        y = F.interpolate(x, scale_factor=scale, **given)
        return y, y.new_ones(y.shape[2]), y.shape[3] + 1

    compiled = mica.compile(
        lambda x: tuple(scaled(x)[0].shape), backend=lambda graph, inputs: graph.forward, dynamic=True
    )
    x = mica.randn(1, 3, 20, 16)
    assert compiled(x) == tuple(scaled(x)[0].shape)

    made = make_fx(scaled, tracing_mode="symbolic")(mica.randn(2, 3, 20, 16))
    for size in ((20, 16), (11, 31), (40, 17)):
        x = mica.randn(2, 3, *size)
        for ours, theirs in zip(made(x), scaled(x), strict=True):
            assert mica.equal(mica.as_tensor(ours), mica.as_tensor(theirs))


def test_large_numbers_of_the_program_stay():
    def function(x):
        return mica.cat([x.expand(5000, -1), x.new_ones(5000, 1)], 1)

    made = make_fx(function, tracing_mode="symbolic")(mica.randn(4))
    assert made(mica.ones(7)).shape == (5000, 8)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("given", ["labels", "weights", "ignored", "probabilities"])
@pytest.mark.parametrize("with_gradient", [True, False])
def test_shares_of_smoothed_labels_follow(reduction, given, with_gradient):
    def loss(x):
        labels = x.new_ones((x.shape[0], x.shape[2]), dtype=mica.int64)
        target = x.detach().softmax(1) if given == "probabilities" else labels
        weight = x.detach()[0, :, 0].abs() if given == "weights" else None
        ignored = {"ignore_index": 1} if given == "ignored" and reduction != "mean" else {}
        made = F.cross_entropy(x, target, weight, reduction=reduction, label_smoothing=0.1, **ignored)
        return mica.autograd.grad(made.sum(), x)[0] if with_gradient else made

    graph = make_fx(loss, tracing_mode="symbolic")(mica.randn(4, 5, 3, requires_grad=with_gradient))
    for size in ((4, 5, 3), (3, 7, 2)):
        x = mica.randn(size, requires_grad=with_gradient)
        assert graph(x).allclose(loss(x), atol=1e-6)


def test_a_share_is_known_by_the_number_that_it_is_of():
    env = ShapeEnv()
    n = env.create_symintnode(env.create_symbol(6, "x"))
    invented = env.worlds.noted(n.node.expr)
    for share in (1 / invented, 0.1 / invented, invented**-0.5, 2 * invented**-0.5):
        assert _invented_numbers._is_invented(share, env)
    for share in (500**-0.5, 1 / 12345, 0.0101010101, 1 / 3e4):
        assert not _invented_numbers._is_invented(share, env)
