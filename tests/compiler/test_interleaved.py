"""Within compiled functions, images between convolutions have their channels side by side: nobody can tell."""

import threading

import mica
import pytest
import random_layers
from convolution_parts import both, conv, norm, said
from mica import _C

F = mica.nn.functional
nn = mica.nn

# The tiles that this is made for are those of AVX-512.
SIDE_BY_SIDE = mica.backends.cpu.get_cpu_capability() == "AVX512"

# A layer between two others, and the images that it gets.
WAYS = {
    "pointwise, small images": (lambda: conv(64, 96, 1, bias=False), (2, 14, 14)),
    "pointwise, the same with a bias": (lambda: conv(64, 96, 1), (3, 13, 17)),
    "pointwise, a position more than whole vectors": (lambda: conv(130, 200, 1, bias=False), (1, 7, 7)),
    "pointwise, the same of several images": (lambda: conv(70, 150, 1), (5, 9, 5)),
    "pointwise, rows in few sets of the cache": (lambda: conv(512, 64, 1, bias=False), (1, 28, 28)),
    "pointwise, large images": (lambda: conv(24, 80, 1, bias=False), (2, 56, 56)),
    "pointwise, few filters of large images": (lambda: conv(64, 16, 1, bias=False), (2, 40, 40)),
    "pointwise, large images of odd sizes": (lambda: conv(24, 80, 1), (1, 41, 41)),
    "pointwise, deep": (lambda: conv(1200, 64, 1, bias=False), (1, 33, 33)),
    "pointwise, a stride": (lambda: conv(48, 64, 1, stride=2, bias=False, padding=0), (2, 56, 56)),
    "pointwise, a stride and odd sizes": (lambda: conv(48, 64, 1, stride=(1, 2), padding=0), (2, 27, 29)),
    "pointwise, padded": (lambda: conv(48, 64, 1, padding=1), (2, 27, 29)),
    "pointwise, groups": (lambda: conv(64, 64, 1, groups=2), (1, 40, 40)),
    "pointwise, few channels": (lambda: conv(8, 64, 1), (1, 40, 40)),
    "Winograd": (lambda: conv(48, 64, 3, bias=False), (2, 28, 28)),
    "Winograd, odd": (lambda: conv(33, 35, 3), (3, 19, 21)),
    "direct, strided": (lambda: conv(32, 64, 3, stride=2), (2, 40, 40)),
    "direct, filters for the third cache": (lambda: conv(192, 160, 3, stride=2, bias=False), (2, 15, 15)),
    "direct, taps apart": (lambda: conv(32, 64, 3, padding=2, dilation=2), (2, 24, 24)),
    "columns, few positions": (lambda: conv(256, 256, 3, bias=False), (1, 7, 7)),
    "columns, few positions and a bias": (lambda: conv(256, 200, 3, stride=2), (1, 13, 11)),
    "columns, few positions of many depths": (lambda: conv(512, 200, 3, bias=False), (1, 8, 8)),
    "columns, few positions and one more than whole vectors": (lambda: conv(256, 330, 5), (1, 7, 7)),
    "columns, few positions, a stride": (lambda: conv(520, 256, 3, stride=2), (1, 15, 15)),
    "depthwise": (lambda: conv(96, 96, 3, groups=96, bias=False), (2, 28, 28)),
    "depthwise, a bias": (lambda: conv(96, 96, 5, groups=96), (3, 14, 17)),
    "depthwise, small planes": (lambda: conv(240, 240, 5, groups=240), (2, 7, 7)),
    "depthwise, strided": (lambda: conv(48, 48, 3, groups=48, stride=2, bias=False), (2, 57, 56)),
    "depthwise, strided filters of 5": (lambda: conv(48, 48, 5, groups=48, stride=2), (1, 29, 31)),
    "depthwise, large planes": (lambda: conv(16, 16, 7, groups=16, bias=False), (1, 100, 90)),
    "depthwise, no padding": (lambda: conv(32, 32, 3, groups=32, padding=0), (2, 30, 30)),
    "depthwise, much padding": (lambda: conv(32, 32, 3, groups=32, padding=5), (2, 12, 12)),
    "depthwise, channels that leave vectors open": (lambda: conv(40, 40, 3, groups=40), (2, 20, 20)),
    "depthwise, taps apart": (lambda: conv(32, 32, 3, groups=32, padding=2, dilation=2), (2, 24, 24)),
    "depthwise, two filters": (lambda: conv(48, 96, 3, groups=48), (1, 40, 40)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("threads", [1, 2])
def test_bits(way, threads):
    make, (images, height, width) = WAYS[way]
    layer = make()
    before, after, bn = conv(20, layer.in_channels, 1), conv(layer.out_channels, 24, 1), norm(layer.out_channels, 1)
    mica.manual_seed(2)
    x = mica.randn(images, 20, height, width)
    count = mica.get_num_threads()
    mica.set_num_threads(threads)
    try:
        both(lambda x: after(F.relu(bn(layer(F.relu(before(x)))))), x)
        both(lambda x: after(F.silu(bn(layer(F.silu(before(x)))))), x)
        both(lambda x: after(layer(before(x))), x)
        both(lambda x: F.relu(bn(layer(F.relu(before(x))))), x)  # the last result has its channels apart
        both(lambda x: after(F.gelu(layer(F.relu(before(x))))), x)
    finally:
        mica.set_num_threads(count)


class Bottleneck(nn.Module):
    def __init__(self, inner, outer, stride=1, given=None):
        super().__init__()
        given = given or outer
        self.body = nn.Sequential(
            conv(given, inner, 1, bias=False), norm(inner, 1), nn.ReLU(inplace=True),
            conv(inner, inner, 3, stride=stride, bias=False), norm(inner, 2), nn.ReLU(),
            conv(inner, outer, 1, bias=False), norm(outer, 3),
        )  # fmt: skip
        self.short = nn.Identity()
        if given != outer or stride != 1:
            self.short = nn.Sequential(conv(given, outer, 1, stride=stride, bias=False, padding=0), norm(outer, 4))

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def residual():
    return nn.Sequential(
        conv(3, 32, 3), nn.MaxPool2d(2), Bottleneck(16, 64, given=32), Bottleneck(16, 64),
        Bottleneck(32, 128, 2, given=64), Bottleneck(32, 128), nn.AdaptiveAvgPool2d(1),
    ).eval()  # fmt: skip


def test_residual_networks():
    model, x = residual(), mica.randn(2, 3, 64, 64)
    both(model, x)
    assert ("channels side by side" in said(model, x)) == SIDE_BY_SIDE


class SqueezeExcite(nn.Module):
    def __init__(self, channels, inner):
        super().__init__()
        self.down, self.up = conv(channels, inner, 1), conv(inner, channels, 1)

    def forward(self, x):
        return x * mica.sigmoid(self.up(F.silu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Inverted(nn.Module):
    def __init__(self, given, inner, outer, kernel, stride):
        super().__init__()
        self.body = nn.Sequential(
            conv(given, inner, 1, bias=False), norm(inner, 1), nn.SiLU(),
            conv(inner, inner, kernel, stride=stride, groups=inner, bias=False), norm(inner, 2), nn.SiLU(),
            SqueezeExcite(inner, 8), conv(inner, outer, 1, bias=False), norm(outer, 3),
        )  # fmt: skip
        self.adds = given == outer and stride == 1

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


def squeezing():
    return nn.Sequential(
        conv(3, 32, 3, stride=2), nn.SiLU(), Inverted(32, 96, 24, 3, 2), Inverted(24, 144, 24, 5, 1),
        Inverted(24, 144, 40, 5, 2), Inverted(40, 240, 40, 3, 1), conv(40, 64, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
    ).eval()  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("images", [1, 3])
def test_squeeze_and_excitation(threads, images):
    model, x = squeezing(), mica.randn(images, 3, 112, 112)
    count = mica.get_num_threads()
    mica.set_num_threads(threads)
    try:
        both(model, x)
    finally:
        mica.set_num_threads(count)
    assert ("channels side by side" in said(model, x)) == SIDE_BY_SIDE


def test_values_that_are_not_finite():
    """Zeros around an image are multiplied too, so that an infinite weight gives NaN there."""
    before, layer, after = conv(16, 32, 1), conv(32, 32, 3, groups=32), conv(32, 16, 1)
    layer.weight.data[3, 0, 0, 1] = float("inf")
    x = mica.randn(1, 16, 20, 20)
    with mica.no_grad():
        wanted, found = layer(F.relu(before(x))), []
        compiled = mica.compile(lambda x: (lambda h: (after(h), found.append(h)))(layer(F.relu(before(x)))))
        for _ in range(3):
            compiled(x)
    for each in found:
        assert mica.allclose(each, wanted, rtol=0, atol=0, equal_nan=True)


def layers():
    return conv(16, 64, 1), conv(64, 48, 3), conv(48, 32, 1)


USES = {
    "printed": lambda h: str(h),
    "an element": lambda h: h[0, 3, 2, 1].item(),
    "an array": lambda h: h.numpy().copy(),
    "its address": lambda h: h.data_ptr(),
    "a view": lambda h: h.view(2, -1)[:, 5].sum().item(),
    "a pool": lambda h: F.max_pool2d(h, 2).sum().item(),
    "a sum over channels": lambda h: h.sum(1).sum().item(),
    "a sum over positions": lambda h: h.mean((2, 3)).sum().item(),
    "a slice of channels": lambda h: (h[:, 1:7] * 2).sum().item(),
    "channels as factors": lambda h: (h * h[:, :, :1, :1]).sum().item(),
    "a permuted sum": lambda h: (h + h.transpose(2, 3)).sum().item(),
    "in place": lambda h: h.mul_(2).sum().item(),
    "in place, nothing read": lambda h: h.clamp_(-0.1, 0.1) is None,
    "a part in place": lambda h: h[0].zero_() is None,
    "a clone": lambda h: h.clone()[1, 2].sum().item(),
    "another storage": lambda h: h.untyped_storage().tolist()[:9],
    "deep copies": lambda h: __import__("copy").deepcopy(h).sum().item(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("when", ["before the next convolution", "after it", "after the one behind it"])
def test_whoever_looks_sees_channels_one_after_the_other(use, when):
    first, second, third = layers()
    mica.manual_seed(3)
    x, seen = mica.randn(2, 16, 24, 24), []

    def look(h, now):
        if now == when:
            result = USES[use](h)
            seen.append(None if use == "its address" else str(result))

    def function(x):
        h = F.relu(first(x))
        look(h, "before the next convolution")
        y = F.relu(second(h))
        look(h, "after it")
        z = third(y)
        look(h, "after the one behind it")
        return z, h, y

    both(function, x)
    assert len(set(seen)) == 1 and len(seen) == 4


def test_results_and_what_the_program_keeps():
    first, second, third = layers()
    x, kept = mica.randn(2, 16, 24, 24), []

    def function(x):
        h = F.relu(first(x))
        kept.append(h)
        y = second(h)
        kept.append(y.view(2, 48, -1)[:, ::2])
        return third(y) + 1, h

    both(function, x)
    wanted = kept[:2]
    for i in range(2, len(kept), 2):
        assert mica.equal(kept[i], wanted[0]) and mica.equal(kept[i + 1], wanted[1])


def test_another_thread_reads():
    first, second, third = layers()
    x, sums = mica.randn(2, 16, 24, 24), []

    def function(x):
        h = F.relu(first(x))
        y = second(h)
        thread = threading.Thread(target=lambda: sums.append((h[:, 3] * 1).sum().item()))
        thread.start()
        thread.join()
        return third(F.relu(y) + 1), h

    both(function, x)
    assert len(set(sums)) == 1


def test_a_function_that_fails_leaves_what_it_has_computed():
    first, second, _ = layers()
    x, kept = mica.randn(2, 16, 24, 24), []

    def function(x):
        h = F.relu(first(x))
        kept.append(h)
        second(h)
        raise KeyError("x")

    with mica.no_grad():
        for run in (function, mica.compile(function), mica.compile(function)):
            with pytest.raises(KeyError):
                run(x)
    assert mica.equal(kept[0], kept[1]) and mica.equal(kept[0], kept[2])


def test_kept_plans_of_calls_without_convolutions():
    """A plan of calls that read an image in its own order is none for the same calls of one that lies otherwise."""
    random_layers.check(855)  # its plans are kept for the next program
    random_layers.check(894)


def test_parts_that_are_not_compiled():
    first, second, third = layers()
    x = mica.randn(2, 16, 24, 24)
    total = mica.compiler.disable(lambda h: h.sum((0, 2, 3)))

    def function(x):
        h = F.relu(first(x))
        y = F.relu(second(h))
        return third(y) + total(h)[:32].view(1, 32, 1, 1), total(y)

    both(function, x)


def test_gradients_are_those_of_the_plain_function():
    first, second, third = layers()
    x = mica.randn(2, 16, 24, 24, requires_grad=True)

    def function(x):
        return third(F.relu(second(F.relu(first(x))))).square().sum()

    wanted = mica.autograd.grad(function(x), [x, *second.parameters()])
    compiled = mica.compile(function)
    for _ in range(3):
        for a, b in zip(wanted, mica.autograd.grad(compiled(x), [x, *second.parameters()]), strict=True):
            assert mica.equal(a, b)


def test_no_memory_is_kept():
    model, x = residual(), mica.randn(2, 3, 64, 64)
    compiled = mica.compile(model)
    with mica.no_grad():
        for _ in range(3):
            compiled(x)
        before = _C._cpu_memory_stats()[0]
        for _ in range(3):
            compiled(x)
        assert _C._cpu_memory_stats()[0] == before
