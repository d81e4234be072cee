"""batch_norm in evaluation is computed together with what is around it, with the same bits."""

import mica
import pytest

F = mica.nn.functional


def norm(channels, dtype, seed):
    mica.manual_seed(seed)
    made = mica.nn.BatchNorm2d(channels).to(dtype).eval()
    for each in (made.weight.data, made.bias.data, made.running_mean):
        each.normal_()
    made.running_var.uniform_(0.5, 2)
    return made


@pytest.mark.parametrize("dtype", [mica.float32, mica.float64, mica.bfloat16])
@pytest.mark.parametrize("shape", [(2, 64, 56, 56), (3, 300, 7, 7), (40, 5, 9, 9), (1, 3, 70, 1), (6, 8, 1, 1)])
@pytest.mark.parametrize("last", [False, True])
def test_bits(dtype, shape, last):
    first, second = norm(shape[1], dtype, 1), norm(shape[1], dtype, 2)
    layout = mica.channels_last if last else mica.contiguous_format
    x, y = (mica.randn(shape).to(dtype).to(memory_format=layout) for _ in range(2))

    def block(x, y):
        return F.relu(second(F.relu(first(x * 2))) + y)

    compiled = mica.compile(block)
    with mica.no_grad():
        wanted, found = block(x, y), compiled(x, y)
    assert mica.equal(wanted, found)
    assert wanted.stride() == found.stride()
    gradients = []
    for function in (block, compiled):
        leaf = x.detach().clone().requires_grad_()
        function(leaf, y).sum().backward()
        gradients.append(leaf.grad)
    assert mica.equal(*gradients)


def test_it_is_one_loop_with_the_activation():
    module = norm(64, mica.float32, 3)
    x, y = mica.randn(2, 64, 28, 28), mica.randn(2, 64, 28, 28)
    with mica.no_grad():
        said = str(mica.explain(mica.compile(lambda x, y: F.relu(module(x) + y)), x, y))
    assert "3 calls of kernels were put off and ran as 1 loops" in said
    assert "batch_norm" in said


def test_statistics_that_change_afterwards_are_not_seen():
    module = norm(64, mica.float32, 4)
    x = mica.randn(2, 64, 28, 28)

    def function(x):
        y = module(x)
        module.running_mean.add_(1)
        return y * 2

    with mica.no_grad():
        before = module.running_mean.clone()
        wanted = function(x)
        module.running_mean.copy_(before)
        assert mica.equal(mica.compile(function)(x), wanted)
