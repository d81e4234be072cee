"""Which memory format layers give their results: that of the input's order in memory, also where the input has gaps."""

import mica
import pytest
from mica import nn
from mica.nn import functional as F

ROWS = mica.arange(2 * 4 * 6 * 6.0).view(2, 4, 6, 6)
DENSE = ROWS.contiguous(memory_format=mica.channels_last)
GAPS = mica.cat([ROWS, ROWS], 1).contiguous(memory_format=mica.channels_last)[:, ::2]
ONE_CHANNEL = ROWS[:, :1].contiguous(memory_format=mica.channels_last)

LAYERS = {
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
    "adaptive_avg_pool2d of all": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 3),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "max_unpool2d": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 1),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "pad": lambda x: F.pad(x, (1, 1)),
    "pad reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("x", [DENSE, GAPS, ONE_CHANNEL], ids=["dense", "gaps", "one channel"])
def test_results_of_channels_last_inputs(layer, x):
    result, plain = layer(x), layer(x.contiguous().clone(memory_format=mica.contiguous_format))
    channels, height, width = result.shape[1:]
    if height > 1:
        assert result.stride() == (channels * height * width, 1, channels * width, channels)
    assert plain.is_contiguous() and mica.allclose(result, plain)


def test_strides_of_one_pixel_and_one_channel():
    assert F.adaptive_avg_pool2d(DENSE, 1).stride() == (4, 1, 4, 4)
    assert F.adaptive_avg_pool2d(ROWS, 1).stride() == (4, 1, 1, 1)
    assert F.pixel_shuffle(DENSE, 2).stride() == (144, 1, 12, 1)
    assert F.adaptive_avg_pool3d(mica.ones(2, 3, 2, 2, 2).to(memory_format=mica.channels_last_3d), 1).stride() == (
        3, 1, 3, 3, 3,
    )  # fmt: skip


def test_to_goes_by_the_format_that_strides_speak_of():
    # Strides that fit both formats count as the plain one, and torch copies.
    for sizes, strides in (((2, 1, 5, 5), (25, 1, 5, 1)), ((2, 3, 1, 1), (3, 1, 3, 3)), ((2, 1, 5, 1), (5, 1, 1, 1))):
        x = mica.randn(sizes)
        turned = x.to(memory_format=mica.channels_last)
        assert turned.stride() == strides and turned.data_ptr() != x.data_ptr() and turned.equal(x)
        assert turned.to(memory_format=mica.channels_last).data_ptr() == turned.data_ptr()
        assert x.contiguous(memory_format=mica.channels_last).data_ptr() == x.data_ptr()
    # Parts of a tensor count as its format, and stay unchanged.
    part = mica.randn(2, 3, 5, 5).to(memory_format=mica.channels_last)[:, :1]
    assert part.to(memory_format=mica.channels_last).stride() == (75, 1, 15, 3)
    every_other = mica.randn(2, 6, 4, 5)[:, ::2]
    assert every_other.to(memory_format=mica.contiguous_format).stride() == (120, 20 * 2, 5, 1)


def test_layers_of_one_channel_or_pixel_keep_the_channels_last():
    x = mica.randn(2, 1, 5, 5)
    layer = nn.Conv2d(1, 2, 3).to(memory_format=mica.channels_last)
    assert layer.weight.stride() == (9, 1, 3, 1) and layer(x).stride() == (18, 1, 6, 2)
    layer = nn.Conv2d(3, 2, 1).to(memory_format=mica.channels_last)
    assert layer.weight.stride() == (3, 1, 3, 3) and layer(mica.randn(2, 3, 5, 5)).stride() == (50, 1, 10, 2)


@pytest.mark.parametrize("channels", [2, 3, 4, 7, 9, 11, 18, 35])
@pytest.mark.parametrize("stride, dilation", [(1, 1), (2, 1), (1, 2)])
def test_a_filter_for_each_of_few_channels(channels, stride, dilation):
    """Few channels that are last are taken apart into planes; of more, the last ones need not fill a vector."""
    mica.manual_seed(0)
    gradients = []
    x, weight, bias = mica.randn(2, channels, 9, 8), mica.randn(channels, 1, 3, 5), mica.randn(channels)
    for fmt in (mica.channels_last, mica.contiguous_format):
        leaves = [
            x.to(memory_format=fmt).requires_grad_(),
            weight.clone().requires_grad_(),
            bias.clone().requires_grad_(),
        ]
        result = F.conv2d(*leaves, stride=stride, dilation=dilation, padding=(1, 2), groups=channels)
        assert result.is_contiguous(memory_format=fmt)
        gradients.append([result.detach(), *mica.autograd.grad(result.square().sum(), leaves)])
    for found, expected in zip(*gradients, strict=True):
        mica.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
