"""Graphs with open sizes have no number in them that was invented for a size while they were made."""

import mica
import pytest
from mica.fx.experimental.proxy_tensor import make_fx
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
