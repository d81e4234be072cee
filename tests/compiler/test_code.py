"""Machine code for chains of simple operations: the bits of the kernels, whatever the shapes and places."""

import platform

import mica as torch
import pytest
from random_programs import same

SIZES = [1, 3, 4, 7, 16, 63, 1000, 4099]


@pytest.fixture(autouse=True)
def everything_is_put_off():
    before = torch._C._set_least_recorded_elements(1)
    yield
    torch._C._set_least_recorded_elements(before)


def numbers(*shape):
    count = torch.Size(shape).numel()
    x = (torch.arange(count, dtype=torch.float64) * 0.7361 % 13 - 6).float().reshape(shape)
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-41, 3e38])
    x.view(-1)[::11] = special.repeat(count // 77 + 1)[: x.view(-1)[::11].numel()]
    return x


def finite(*shape):
    return numbers(*shape).nan_to_num(0.25, 3.0, -3.0).clamp(-100, 100)


def agree(function, *make):
    """As it is, compiled with machine code, and compiled without it: the same bits."""
    expected = function(*[each() for each in make])
    for on in (True, False):
        before = torch._C._set_generated_code(on)
        try:
            found = torch.compile(function)(*[each() for each in make])
        finally:
            torch._C._set_generated_code(before)
        for a, b in zip(expected, found, strict=True):
            assert same(a, b)


@pytest.mark.parametrize("n", SIZES)
def test_every_operation_and_every_length(n):
    def program(x, y, z):
        simple = [x + y, x - y, x * y, x / y, -x, x.abs(), x.sqrt(), x.rsqrt(), x.reciprocal(), 3 - x, 2 / x]
        scaled = [torch.add(x, y, alpha=0.3), torch.sub(x, y, alpha=0.3), torch.rsub(x, y, alpha=2.5)]
        bounds = [x.clamp(-1, 2), x.clamp(min=y), x.clamp(max=0.5), x.maximum(y), x.minimum(y), x.relu()]
        powers = [x.pow(2), x.pow(3), x.pow(0.5), x.pow(-1), x.pow(-2)]
        more = [x.addcmul(y, z, value=0.7), x.addcdiv(y, z, value=0.7), x.lerp(y, 0.25), x.lerp(y, 0.75)]
        firsts = simple + scaled + bounds + powers + more
        return [(each * 2 + z) - each for each in firsts] + firsts

    agree(program, lambda: numbers(n), lambda: numbers(n) * 0.5, lambda: numbers(n) + 1)


def test_rows_columns_and_places():
    def program(x, column, row, number):
        a = (x - column) * row + number
        b = (x[:, ::2] * 2 + 1).abs()
        c = x.t() * 2 - x.t() / 3
        d = (x[3:, 5:] + 1) * x[:-3, :-5]
        return a, b, c, d, (column * 2 + 1) * column, (row - 1) * row + number

    agree(program, lambda: numbers(37, 70), lambda: numbers(37, 1), lambda: numbers(70), lambda: numbers(1)[0] + 1)


def test_more_loops_than_rows():
    def program(x, y, z):
        return (x * y + z) / y, (x.transpose(1, 2) * 2 + 1) * x.transpose(1, 2)

    agree(program, lambda: numbers(3, 4, 5, 24), lambda: numbers(4, 1, 24), lambda: numbers(3, 1, 5, 1))


def test_changes_in_place_and_parts():
    def program(x, y):
        y.mul_(0.9).add_(x, alpha=0.1)
        before = y * 2
        y.copy_(x)
        x.add_(1).mul_(y)
        x[:50].sub_(y[50:100]).mul_(3)
        x[50:100] = x[:50] * 2 + 1
        return x, y, before, torch.cat([x[:30] * 2 + 1, y[:30] * 3 - 1])

    agree(program, lambda: numbers(700), lambda: numbers(700) + 0.5)


def test_calls_are_moved_to_those_they_belong_with():
    def norm(x, w):
        half = 0.5 * x
        m = x.mean(-1, keepdim=True)
        centred = x - m
        scale = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)
        x.add_(1)
        return centred * scale * w + half, x, half.sin() * half

    agree(norm, lambda: numbers(40, 64), lambda: numbers(64))
    gelu = torch.compile(lambda x: 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.04 * x * x * x))))
    text = str(torch.explain(gelu, torch.rand(100_000)))
    assert text.index("tanh") < text.index("mul float32[100000] of %1, a number -> %0")


def test_halves_of_rows_are_written_together():
    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return [torch.cat([a * cos - b * sin, b * cos + a * sin], -1), torch.cat([x * 2, x[:, :5], x + 1], 1)]

    agree(rotate, lambda: numbers(30, 48), lambda: numbers(24), lambda: numbers(24) + 1)

    def overlapping(x):
        x[:, :30].mul_(2)
        x[:, 20:50].add_(1)
        return [x, x[:, :24] * x[:, 24:48]]

    agree(overlapping, lambda: numbers(30, 50))


@pytest.mark.parametrize("n", [6, 24, 64, 100, 256])
def test_what_is_read_in_halves_is_computed_in_halves(n):
    def rotate(x, w, cos, sin):
        y = x * x.pow(2).mean(-1, keepdim=True) * w
        a, b = y.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def halves(x, w, cos, sin):
        one, two, three = (x * w + 1 for _ in range(3))
        a, b = one.chunk(2, -1)
        c, d = two.chunk(2, -1)
        e = three[:, : n // 2] * 2 + three[:, 1 : n // 2 + 1]  # no halves
        q = [part * 2 - 1 for part in (a * cos + 1).chunk(2, -1)]  # halves of halves
        x.mul_(2)
        f, g = x.chunk(2, -1)
        return [a - b, b * a, c * cos + d, two.sum(-1), e, *q, f * sin - g, x, d.exp() + c, torch.cat([a.abs(), b], 0)]

    made = [lambda: numbers(6, n), lambda: numbers(n) + 1, lambda: numbers(n // 2), lambda: numbers(6, n // 2) * 2]
    agree(lambda *xs: [rotate(*xs)], *made)
    agree(halves, *made)
    text = str(torch.explain(torch.compile(rotate), finite(240, n), *[each() for each in made[1:3]], finite(n // 2)))
    assert (f"mul float32[240, {n // 2}] of %1" in text) == (n >= 32)


@pytest.mark.parametrize("n", [4, 7, 8, 12, 30, 32, 36, 64, 516, 1024, 1500, 4096, 20000])
def test_sums_and_means_of_rows(n):
    def program(x, y):
        squares, row = x.pow(2), (x - y).sum(-1)
        kept = x * 2 + 1
        m = kept.mean(-1, keepdim=True)
        centred = kept - m
        y.mul_(3).sub_(1)
        parts = [(x[:, ::2] * 2 + 1).sum(-1), (x[:, n // 2 :] * y[:, n // 2 :]).mean(-1, keepdim=True)]
        both = (x * y).sum((-1, -2)), (x * y - 1).sum(0)
        truth = torch.where(x > y, x, y).sum(-1)
        return [
            squares.mean(-1, keepdim=True),
            row,
            m,
            centred,
            centred.abs().sum(-1),
            kept.exp(),
            y,
            y.mul(2).mean(-1),
            *parts,
            *both,
            truth,
        ]

    agree(program, lambda: numbers(5, n), lambda: numbers(5, n) * 0.5)
    agree(program, lambda: finite(5, n), lambda: finite(5, n) * 0.5 + 1)


def test_a_norm_of_three_dimensions_is_summed_in_registers():
    def norm(x, w):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        total = (x * w).sum(-1)
        return [x * scale * w, (x.transpose(0, 1) * 2 + 1).sum(-1), total, total / 2 + 1]

    agree(norm, lambda: finite(6, 10, 64), lambda: finite(64))
    if platform.machine() == "aarch64":
        text = str(torch.explain(torch.compile(norm), finite(60, 10, 64), finite(64)))
        assert "    | reduce_mean" in text


def test_more_values_than_registers():
    def program(*xs):
        sums = [x * (i + 1.5) + i for i, x in enumerate(xs)]
        products = [a * b for a in sums for b in sums[:4]]
        total = products[0]
        for each in products[1:]:
            total = total + each
        return [total, *products]

    agree(program, *[lambda i=i: numbers(130) + i for i in range(16)])


def test_an_explanation_marks_what_machine_code_computes():
    text = str(torch.explain(torch.compile(lambda x: (x * 2 + 1).exp() * x - 1), torch.rand(100_000)))
    assert text.count("    / ") == 2 and text.count("    | ") == 2
