"""Kept plans of convolutions: what may differ between two calls that one plan serves."""

import mica
from convolution_parts import conv, norm

F = mica.nn.functional


def test_a_plan_that_is_kept_has_the_numbers_of_the_call():
    # Plans are kept from the second call on. Norms' eps, slopes, factors, strides and the modules change between calls.
    layers = [conv(24, 32, 3, seed=s, stride=2, bias=False) for s in range(3)]
    wide = [conv(24, 32, 5, seed=s, stride=2, padding=2, bias=False) for s in range(3)]
    norms = [norm(32, s) for s in range(3)]
    mica.manual_seed(1)
    xs = [mica.randn(2, 24, 40, 40) for _ in range(3)]

    def step(layer, bn, x, eps, slope, factor):
        y = F.batch_norm(layer(x), bn.running_mean, bn.running_var, bn.weight, bn.bias, False, 0.1, eps)
        return F.leaky_relu(y, slope) * factor, F.elu(y, slope)

    compiled = mica.compile(step)
    with mica.no_grad():
        for i in range(24):
            layer, bn = (layers if i % 5 else wide)[i % 3], norms[i % 2]
            args = (layer, bn, xs[i // 2 % 3], 10.0 ** -(i % 7), 0.01 * (1 + i % 4), 1 + i % 3)
            for a, b in zip(step(*args), compiled(*args), strict=True):
                assert mica.equal(a, b), i


def test_a_plan_that_is_kept_takes_the_factors_of_the_call():
    layers = [conv(40, 48, 1, seed=s, bias=False) for s in range(2)]
    bn = norm(48, 3)
    compiled = mica.compile(lambda layer, x, f, r: F.relu(bn(layer(x * f)) + r))
    mica.manual_seed(1)
    with mica.no_grad():
        for i in range(9):
            x, f, r = mica.randn(1, 40, 36, 36), mica.rand(1, 40, 1, 1), mica.randn(1, 48, 36, 36)
            assert mica.equal(compiled(layers[i % 2], x, f, r), F.relu(bn(layers[i % 2](x * f)) + r))


def test_a_plan_that_is_kept_is_not_that_of_other_memory():
    # The result of the second kind of call is written into a part of a larger tensor, and one is asked for.
    layer, bn = conv(16, 32, 3, bias=False), norm(32, 3)

    def step(x, room, whole):
        y = layer(x)
        z = F.relu(bn(y))
        if room is not None:
            room[:2].copy_(z)
        return (z, y) if whole else (z,)

    compiled = mica.compile(step)
    mica.manual_seed(1)
    with mica.no_grad():
        for i in range(16):
            x = mica.randn(2, 16, 24, 24)
            rooms = [mica.zeros(3, 32, 24, 24) if i % 2 else None for _ in range(2)]
            wanted, found = step(x, rooms[0], i % 4 > 1), compiled(x, rooms[1], i % 4 > 1)
            assert all(mica.equal(a, b) for a, b in zip(wanted, found, strict=True))
            assert rooms[0] is None or mica.equal(rooms[0], rooms[1])
