"""Memory that calls on the blocks of a convolution write: in place, in views, and where somebody reads it afterwards."""

import mica
import numpy
import pytest
from convolution_parts import both, conv, made_parts, norm, said

F = mica.nn.functional


@pytest.fixture
def parts():
    return made_parts()


def test_in_place(parts):
    layer, bn, x = parts

    def activation(x):
        y = bn(layer(x))
        y.relu_()
        y += x
        return y

    both(activation, x)

    def on_the_result(x):
        y = layer(x)
        y.mul_(2)
        return y.relu_()

    both(on_the_result, x)


SUMS = {
    "a sum": lambda y, r: y.add_(r),
    "a sum and an activation": lambda y, r: F.relu(y.add_(r)),
    "a product that goes on": lambda y, r: y.mul_(r + 1) * 3 + 1,
    "read before it is changed": lambda y, r: [mica.sigmoid(r) + y, y.sub_(r), y.mean((2, 3))],
    "written over": lambda y, r: [y.copy_(r), y.relu_()],
    "part of it": lambda y, r: [y[:, 3:].add_(r[:, 3:]), y],
}


@pytest.mark.parametrize("name", SUMS)
def test_what_was_computed_before_is_changed_in_place(parts, name):
    """A block of the convolution may lie in the memory of a result, but not where values are that a call still adds to."""
    layer, bn, x = parts
    other, second = conv(64, 64, 3, seed=8), norm(64, 7)
    both(lambda x: SUMS[name](second(other(x)), bn(layer(x))), x)
    both(lambda x: SUMS[name](x * 2, layer(x)), x)
    both(lambda x: SUMS[name](x.clone(), bn(layer(x))), x)


def test_views_of_the_result(parts):
    layer, _, x = parts

    def halves(x):
        a, b = layer(x).chunk(2, 1)
        return a * mica.sigmoid(b)

    both(halves, x)
    both(lambda x: F.relu(layer(x).flatten(1)), x)
    both(lambda x: F.relu(layer(x)).transpose(2, 3) + 1, x)
    both(lambda x: F.relu(layer(x)[:, :, 1:]), x)


def test_what_it_reads_is_changed_afterwards(parts):
    layer, bn, x = parts

    def function(x):
        x = x * 2
        y = layer(x)
        x.add_(1)
        return F.relu(bn(y)) + x

    both(function, x)

    def norms(x):
        y = bn(layer(x))
        bn.running_mean.mul_(2)
        z = F.relu(y)
        bn.running_mean.mul_(0.5)
        return z

    both(norms, x)


def test_the_weight_is_changed_between():
    big = conv(256, 256, 3, seed=3)
    x = mica.randn(1, 256, 14, 14)

    def function(x):
        first = F.relu(big(x))
        big.weight.mul_(2)
        second = F.relu(big(x))
        big.weight.mul_(0.5)
        return first, second

    both(function, x)
    compiled = mica.compile(lambda x: F.relu(big(x)))
    with mica.no_grad():
        for _ in range(3):
            assert mica.equal(compiled(x), F.relu(big(x)))
        big.weight.add_(0.25)
        for _ in range(3):
            assert mica.equal(compiled(x), F.relu(big(x)))


def test_into_memory_that_there_is(parts):
    layer, bn, x = parts
    target = mica.zeros_like(x)
    sums = mica.zeros_like(x)

    def function(x):
        y = bn(layer(x))
        sums.add_(y)
        target.copy_(F.relu(y))
        return target * 2

    compiled = mica.compile(function)
    with mica.no_grad():
        wanted = bn(layer(x))
        for _ in range(3):
            assert mica.equal(compiled(x), F.relu(wanted) * 2)
            assert mica.equal(target, F.relu(wanted))
        assert mica.allclose(sums, wanted * 3, rtol=1e-5, atol=1e-5)

    def into_its_input(x):
        x.copy_(F.relu(layer(x)))
        return x

    with mica.no_grad():
        a, b = x.clone(), x.clone()
        for _ in range(2):
            assert mica.equal(into_its_input(a), mica.compile(into_its_input)(b))


def test_an_image_that_numpy_may_change():
    """A small image is copied, so that its convolution can wait: the array may change before it runs."""
    layer, bn = conv(3, 32, 3), norm(32, 4)
    values = numpy.random.default_rng(3).standard_normal((1, 3, 40, 40), numpy.float32)
    array = values.copy()
    x = mica.from_numpy(array)

    def function(x):
        y = layer(x)
        array[:] = 0
        return F.relu(bn(y))

    compiled = mica.compile(function)
    with mica.no_grad():
        wanted = function(x)
        for _ in range(3):
            array[:] = values
            assert mica.equal(compiled(x), wanted)
    assert "3 calls of kernels were put off and ran as 1 loops" in said(lambda x: F.relu(bn(layer(x))), x)


def test_a_large_image_that_numpy_may_change():
    layer = conv(16, 16, 3)
    array = numpy.random.default_rng(3).standard_normal((1, 16, 40, 40), numpy.float32)
    both(lambda x: F.relu(layer(x)), mica.from_numpy(array))
