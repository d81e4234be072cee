"""Between convolutions of compiled functions, max pools take and give images whose channels lie side by side."""

import math

import mica
import pytest
from convolution_parts import both, conv, norm, said
from mica import _C

F = mica.nn.functional

SIDE_BY_SIDE = mica.backends.cpu.get_cpu_capability() == "AVX512"

# The channels, and the arguments of the pool.
POOLS = {
    "whole groups of vectors": (64, {"kernel_size": 3, "stride": 2, "padding": 1}),
    "vectors beside groups of them": (80, {"kernel_size": 2}),
    "channels that leave vectors open": (41, {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)}),
    "less than a vector": (17, {"kernel_size": 3, "stride": 1}),
    "a window beyond the edge": (64, {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    "taps apart": (64, {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 3}),
}


def layers(channels):
    return conv(3, channels, 3, stride=2), norm(channels, 1), conv(channels, 32, 1), conv(channels, 48, 1)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("threads", [1, 2])
def test_bits(pool, threads):
    channels, options = POOLS[pool]
    before, bn, after, other = layers(channels)
    mica.manual_seed(2)
    x = mica.randn(2, 3, 61, 58)
    count = mica.get_num_threads()
    mica.set_num_threads(threads)
    try:
        both(lambda x: after(F.max_pool2d(F.relu(bn(before(x))), **options)), x)
        both(lambda x: (lambda h: (after(h), other(h)))(F.max_pool2d(F.relu(before(x)), **options)), x)
        both(lambda x: F.max_pool2d(F.relu(bn(before(x))), **options), x)
        both(lambda x: F.max_pool2d(F.relu(bn(before(x))), return_indices=True, **options), x)
        both(lambda x: (lambda h: (h, after(F.max_pool2d(h, **options))))(F.relu(before(x))), x)
        both(lambda x: F.max_pool2d(before(x), **options).mul_(2).sum((2, 3)), x)
    finally:
        mica.set_num_threads(count)


def test_the_convolution_before_a_pool_writes_channels_side_by_side():
    before, bn, after, _ = layers(64)
    text = said(lambda x: after(F.max_pool2d(F.relu(bn(before(x))), 3, 2, 1)), mica.randn(1, 3, 64, 64))
    assert "flush at a pool" in text or not SIDE_BY_SIDE
    assert ("channels side by side" in text) == SIDE_BY_SIDE


def test_values_that_are_not_finite():
    """A NaN is the largest number, and a window without any number above minus infinity has that."""
    before, _, after, _ = layers(64)
    x = mica.randn(1, 3, 40, 40)
    before.weight.data.clamp_(min=0.1)
    for at, value in (((0, 0, 5, 6), math.nan), ((0, 1, 20, 21), math.inf), ((0, 2, 30, 8), -math.inf)):
        x[at] = value
    x[0, 0, 24:, 24:] = -math.inf
    compiled = mica.compile(lambda x: (lambda h: (after(h), h))(F.max_pool2d(before(x), 3, 2, 1)))
    with mica.no_grad():
        wanted = F.max_pool2d(before(x), 3, 2, 1)
        for _ in range(3):
            assert mica.allclose(compiled(x)[1], wanted, rtol=0, atol=0, equal_nan=True)
    assert wanted.isnan().any() and wanted.isinf().any()


def test_gradients_are_those_of_the_plain_function():
    before, bn, after, _ = layers(64)
    x = mica.randn(1, 3, 40, 40, requires_grad=True)

    def function(x):
        return after(F.max_pool2d(F.relu(bn(before(x))), 3, 2, 1)).square().sum()

    wanted = mica.autograd.grad(function(x), [x, before.weight])
    compiled = mica.compile(function)
    for _ in range(3):
        for a, b in zip(wanted, mica.autograd.grad(compiled(x), [x, before.weight]), strict=True):
            assert mica.equal(a, b)


def test_no_memory_is_kept():
    before, bn, after, _ = layers(64)
    compiled = mica.compile(lambda x: after(F.max_pool2d(F.relu(bn(before(x))), 3, 2, 1)))
    x = mica.randn(1, 3, 64, 64)
    with mica.no_grad():
        for _ in range(3):
            compiled(x)
        held = _C._cpu_memory_stats()[0]
        for _ in range(3):
            compiled(x)
        assert _C._cpu_memory_stats()[0] == held
