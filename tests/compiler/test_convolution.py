"""What follows a convolution runs on its blocks as they are computed, with the same bits."""

import threading

import mica
import pytest
from convolution_parts import both, conv, made_parts, norm, said

F = mica.nn.functional
nn = mica.nn


# module, input
WAYS = {
    "pointwise, small images": (lambda: conv(64, 96, 1, bias=False), (2, 64, 14, 14)),
    "pointwise, images of odd sizes": (lambda: conv(40, 72, 1), (3, 40, 13, 17)),
    "pointwise, panels that a thread packs for itself": (lambda: conv(400, 24, 1, bias=False), (2, 400, 27, 29)),
    "pointwise, the same with a bias": (lambda: conv(700, 40, 1), (3, 700, 17, 19)),
    "pointwise, filters and positions that leave tiles open": (lambda: conv(300, 72, 1), (2, 300, 14, 15)),
    "pointwise, a position more than whole vectors": (lambda: conv(530, 200, 1, bias=False), (1, 530, 7, 7)),
    "pointwise, the same of several images": (lambda: conv(70, 150, 1), (5, 70, 9, 5)),
    "pointwise, large images": (lambda: conv(24, 80, 1, bias=False), (2, 24, 56, 56)),
    "pointwise, large images with a bias": (lambda: conv(24, 80, 1), (1, 24, 40, 41)),
    "pointwise, many filters": (lambda: conv(64, 512, 1, bias=False), (1, 64, 36, 36)),
    "pointwise, deep": (lambda: conv(2300, 64, 1, bias=False), (1, 2300, 33, 33)),
    "pointwise, one filter": (lambda: conv(24, 1, 1), (1, 24, 96, 96)),
    "pointwise, a stride": (lambda: conv(48, 64, 1, stride=2, bias=False), (2, 48, 56, 56)),
    "pointwise, groups": (lambda: conv(64, 64, 1, groups=2), (1, 64, 40, 40)),
    "Winograd": (lambda: conv(48, 64, 3, bias=False), (2, 48, 28, 28)),
    "Winograd, odd": (lambda: conv(33, 35, 3), (3, 33, 19, 21)),
    "direct": (lambda: conv(3, 64, 7, stride=2, bias=False), (2, 3, 64, 64)),
    "direct, strided": (lambda: conv(32, 64, 3, stride=2), (2, 32, 40, 40)),
    "direct, filters for the third cache": (lambda: conv(192, 160, 3, stride=2, bias=False), (2, 192, 15, 15)),
    "direct, the same with groups and a bias": (lambda: conv(384, 300, 3, stride=2, groups=2), (1, 384, 14, 13)),
    "direct, groups": (lambda: conv(64, 64, 3, stride=2, groups=2), (1, 64, 40, 40)),
    "direct, narrow groups": (lambda: conv(64, 64, 3, groups=16), (1, 64, 40, 40)),
    "depthwise": (lambda: conv(96, 96, 3, groups=96, bias=False), (2, 96, 28, 28)),
    "depthwise, strided": (lambda: conv(96, 96, 5, groups=96, stride=2), (1, 96, 29, 31)),
    "depthwise, large planes": (lambda: conv(9, 9, 3, groups=9), (2, 9, 100, 90)),
    "depthwise, strided planes in bands": (lambda: conv(9, 18, 5, groups=9, stride=2, bias=False), (1, 9, 113, 114)),
    "depthwise, small planes": (lambda: conv(700, 700, 3, groups=700), (2, 700, 7, 7)),
    "depthwise, two filters": (lambda: conv(48, 96, 3, groups=48), (1, 48, 40, 40)),
    "columns": (lambda: conv(16, 6, 3, stride=2), (4, 16, 80, 80)),
    "a kernel as large as the image": (lambda: conv(16, 9000, 4, padding=0), (4, 16, 4, 4)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("threads", [1, 2])
def test_bits(way, threads):
    make, shape = WAYS[way]
    layer = make()
    bn = norm(layer.out_channels, 1)
    mica.manual_seed(2)
    x = mica.randn(shape)
    with mica.no_grad():
        y = mica.randn(layer(x).shape)
    before = mica.get_num_threads()
    mica.set_num_threads(threads)
    try:
        both(lambda x, y: F.relu(bn(layer(x))), x, y)
        both(lambda x, y: F.relu(bn(layer(x)) + y), x, y)
        both(lambda x, y: F.silu(bn(layer(x))), x, y)
        both(lambda x, y: F.hardswish(layer(x)) * y[:, :, :1, :1], x, y)
        both(lambda x, y: F.relu(layer(x)), x, y)
        both(lambda x, y: (lambda z: (z, z.mean((2, 3))))(F.silu(bn(layer(x)))), x, y)
        both(lambda x, y: F.relu(bn(layer(x)) + y).mean((2, 3)), x, y)
    finally:
        mica.set_num_threads(before)


@pytest.mark.parametrize(
    "shape",
    [
        (2, 48, 28, 28),
        (3, 40, 19, 17),
        (2, 24, 56, 56),
        (1, 300, 40, 40),
        (1, 2, 90, 90),
        (3, 520, 17, 23),
        (1, 600, 7, 7),
    ],
)
@pytest.mark.parametrize("filters", [3, 32, 200])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_product_by_channel_before_it(shape, filters, threads):
    layer, other = conv(shape[1], filters, 1, bias=False), conv(shape[1], filters, 3)
    bn = norm(filters, 2)
    mica.manual_seed(6)
    x, scale, y = mica.randn(shape), mica.randn(shape[:2] + (1, 1)), mica.randn(shape[0], filters, *shape[2:])
    before = mica.get_num_threads()
    mica.set_num_threads(threads)
    try:
        both(lambda x, s, y: bn(layer(x * s)) + y, x, scale, y)
        both(lambda x, s, y: F.relu(layer(s[:1] * x)), x, scale, y)
        both(lambda x, s, y: F.relu(other(s * x)), x, scale, y)
        both(lambda x, s, y: (lambda z: (F.relu(layer(z)), z))(s * x), x, scale, y)
        both(lambda x, s, y: (lambda z: F.relu(layer(z)) + z[:, :1])(s * x), x, scale, y)
    finally:
        mica.set_num_threads(before)


def test_a_product_by_channel_whose_factors_change(parts):
    layer, bn, x = parts
    scale = mica.randn(2, 64, 1, 1)

    def function(x, s):
        x = x + 1
        z = layer(x * s)
        x.add_(1)
        y = F.relu(bn(z))
        s = s + 1
        return y, layer(x * s)

    both(function, x, scale)


def test_a_product_by_channel_has_no_memory(parts):
    layer, bn, x = parts
    text = said(lambda x, s: F.relu(bn(layer(x * s))), x, mica.randn(2, 64, 1, 1))
    assert "4 calls of kernels were put off and ran as 1 loops" in text


def test_it_is_one_loop():
    layer, bn = conv(64, 64, 1, bias=False), norm(64, 3)
    x = mica.randn(2, 64, 28, 28)
    text = said(lambda x: F.relu(bn(layer(x))), x)
    assert "3 calls of kernels were put off and ran as 1 loops" in text
    assert "3 calls on blocks of a convolution" in text


def test_a_mean_whose_image_nobody_asks_for_is_part_of_it():
    layer, bn = conv(64, 640, 1, bias=False), norm(640, 3)
    x = mica.randn(1, 64, 7, 7)
    text = said(lambda x: F.silu(bn(layer(x))).mean((2, 3)), x)
    assert "4 calls on blocks of a convolution" in text


def test_the_convolution_has_no_memory_of_its_own():
    layer, bn = conv(64, 64, 3, bias=False), norm(64, 3)
    x = mica.randn(2, 64, 28, 28)
    size = 2 * 64 * 28 * 28 * 4
    text = said(lambda x: F.silu(bn(layer(x))), x)
    assert f"writes {size} bytes of memory, keeps {2 * size} bytes out of it" in text


@pytest.mark.parametrize("size", [4, 7, 28])
def test_a_norm_and_a_silu_are_one_pass(size):
    layer, bn = conv(96, 96, 3, groups=96, bias=False), norm(96, 3)
    x = mica.randn(2, 96, size, size)
    x[0, 0], x[0, 1, 0, 0], x[1, 2], x[1, 3] = 90.0, mica.inf, -90.0, mica.nan
    with mica.no_grad():
        wanted = F.silu(bn(layer(x)))
        compiled = mica.compile(lambda x: F.silu(bn(layer(x))))
        for _ in range(3):
            assert mica.equal(compiled(x).view(mica.int32), wanted.view(mica.int32))
    if size > 4:
        text = said(lambda x: F.silu(bn(layer(x))), x)
        assert "    / batch_norm" in text and "    | silu" in text


def test_a_norm_that_others_read_stays_apart(parts):
    layer, bn, x = parts
    both(lambda x: (lambda z: F.silu(z) * z)(bn(layer(x))), x)
    both(lambda x: (lambda z: (F.silu(z), z))(bn(layer(x))), x)
    both(lambda x: (lambda z: F.silu(z) + F.silu(z + 1))(bn(layer(x))), x)
    both(lambda x: F.silu(F.silu(bn(layer(x)))), x)
    both(lambda x: F.silu(bn(layer(x)), inplace=True), x)


def test_small_results_are_put_off_too():
    layer, bn = conv(480, 80, 1, bias=False), norm(80, 3)
    mica.manual_seed(6)
    x, scale, y = mica.randn(1, 480, 14, 14), mica.randn(1, 480, 1, 1), mica.randn(1, 80, 14, 14)

    def function(x, scale, y):
        return bn(layer(x * scale)) + y

    both(function, x, scale, y)
    assert "4 calls of kernels were put off and ran as 1 loops" in said(function, x, scale, y)


@pytest.fixture
def parts():
    return made_parts()


def test_a_result_that_is_asked_for(parts):
    layer, bn, x = parts

    def function(x):
        y = layer(x)
        return F.relu(bn(y)), y

    both(function, x)


def test_a_result_that_two_read(parts):
    layer, bn, x = parts

    def function(x):
        y = layer(x)
        return F.relu(bn(y)) + mica.sin(y)

    both(function, x)
    both(lambda x: [(lambda y: F.relu(y) * mica.sigmoid(y))(layer(x))], x)


def test_two_convolutions_in_a_sum(parts):
    layer, bn, x = parts
    other, second = conv(64, 64, 3, seed=8), norm(64, 7)

    def function(x):
        return F.relu(bn(layer(x)) + second(other(x)))

    both(function, x)
    both(lambda x: F.relu(layer(x) + other(x)), x)
    text = said(function, x)
    assert text.count("calls on blocks of a convolution") == 2


def test_infinities_stay_where_they_belong():
    layer, bn = conv(48, 64, 3, bias=False), norm(64, 3)
    x = mica.randn(1, 48, 28, 28)
    x[0, 5, 3, 4] = float("inf")
    compiled = mica.compile(lambda x: F.relu(bn(layer(x))) + x[:, :1])
    with mica.no_grad():
        wanted = F.relu(bn(layer(x))) + x[:, :1]
        for _ in range(2):
            assert mica.equal(wanted.nan_to_num(7.0), compiled(x).nan_to_num(7.0))


def test_gradients(parts):
    layer, bn, x = parts

    def function(x):
        return F.relu(bn(layer(x)) + x).square().mean()

    found = []
    for f in (function, mica.compile(function)):
        leaf = x.clone().requires_grad_()
        layer.zero_grad()
        f(leaf).backward()
        found.append([leaf.grad, layer.weight.grad.clone(), layer.bias.grad.clone()])
    for a, b in zip(*found, strict=True):
        assert mica.equal(a, b)


def test_training():
    x = mica.randn(2, 64, 28, 28)
    results = []
    for compiles in (False, True):
        mica.manual_seed(3)
        model = nn.Sequential(nn.Conv2d(64, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        optimizer = mica.optim.SGD(model.parameters(), lr=0.1)
        call = mica.compile(model) if compiles else model
        for _ in range(3):
            optimizer.zero_grad()
            call(x).square().mean().backward()
            optimizer.step()
        results.append([p.detach().clone() for p in model.parameters()])
    for a, b in zip(*results, strict=True):
        assert mica.equal(a, b)


def test_an_error_after_it(parts):
    layer, bn, x = parts
    kept = []

    def function(x):
        kept.append(F.relu(bn(layer(x))))
        raise ValueError("no")

    with mica.no_grad():
        with pytest.raises(ValueError, match="no"):
            mica.compile(function)(x)
        assert mica.equal(kept[0], F.relu(bn(layer(x))))


def test_another_thread_asks(parts):
    layer, bn, x = parts
    found = []

    def function(x):
        y = F.relu(bn(layer(x)))
        thread = threading.Thread(target=lambda: found.append(y.sum().item()))
        thread.start()
        thread.join()
        return y

    with mica.no_grad():
        y = mica.compile(function)(x)
        assert found == [F.relu(bn(layer(x))).sum().item()]
        assert mica.equal(y, F.relu(bn(layer(x))))


def test_nobody_asks(parts):
    layer, bn, x = parts
    with mica.no_grad():
        compiled = mica.compile(lambda x: (F.relu(bn(layer(x))), x + 1)[1])
        assert mica.equal(compiled(x), x + 1)


def test_volumes_and_lines():
    for layer, shape in [
        (nn.Conv1d(32, 64, 3, padding=1), (2, 32, 400)),
        (nn.Conv1d(32, 64, 1), (2, 32, 2000)),
        (nn.Conv3d(16, 32, 3, padding=1), (1, 16, 8, 12, 12)),
        (nn.Conv3d(16, 32, 1), (1, 16, 8, 14, 14)),
    ]:
        x = mica.randn(shape)
        both(lambda x, layer=layer: F.relu(layer(x) * 2), x)


def test_other_layouts_and_dtypes(parts):
    layer, bn, x = parts
    both(lambda x: F.relu(bn(layer(x))), x.to(memory_format=mica.channels_last))
    wide, wide_norm = conv(64, 64, 3).double(), norm(64, 2).double()
    both(lambda x: F.relu(wide_norm(wide(x))), x.double())
    narrow, narrow_norm = conv(64, 64, 3).bfloat16(), norm(64, 2).bfloat16()
    both(lambda x: F.relu(narrow_norm(narrow(x))), x.bfloat16())


def test_without_machine_code(parts):
    layer, bn, x = parts
    before = mica._C._set_generated_code(False)
    try:
        both(lambda x: F.relu(bn(layer(x)) + x), x)
    finally:
        mica._C._set_generated_code(before)
