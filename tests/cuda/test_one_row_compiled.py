"""Products of one row in compiled functions that are replayed: the norm before them and the loops behind them are part of
their kernel, and every bit is eager's."""

import mica
import pytest
from replayed_kernels import DTYPES, count, drawn, replayed_as_eagerly

F = mica.nn.functional

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inner", [64, 512, 2048, 5632, 6144])
@pytest.mark.parametrize("columns", [7, 256, 2048, 5000])
def test_a_sum_behind_a_product(dtype, inner, columns):
    x, weight, bias = (
        drawn(1, 1, inner, seed=1, dtype=dtype),
        drawn(columns, inner, seed=2, dtype=dtype),
        drawn(columns),
    )
    residual = drawn(1, 1, columns, seed=3, dtype=dtype)
    kernels = replayed_as_eagerly(lambda x: residual + F.linear(x * 2, weight), x)
    assert count(kernels, "rows_kernel") == 1
    assert count(kernels, "AddScaled") == (inner <= 512)  # of short rows the kernel computes no more than products
    replayed_as_eagerly(lambda x: F.gelu(F.linear(x * 2, weight, bias.to(dtype))) * residual + 1, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inner", "columns"), [(64, 24), (768, 3072), (2048, 5632), (4096, 1000)])
def test_two_products_that_one_loop_follows(dtype, inner, columns):
    x = drawn(1, inner, seed=1, dtype=dtype)
    gate, up = drawn(columns, inner, seed=2, dtype=dtype), drawn(columns, inner, seed=3, dtype=dtype)
    kernels = replayed_as_eagerly(lambda x: F.silu(F.linear(x + 1, gate)) * F.linear(x + 1, up), x)
    assert count(kernels, "rows_kernel") <= 2  # x + 1 is computed twice, as it is written
    one_row = lambda x: (lambda h: F.silu(F.linear(h, gate)) * F.linear(h, up))(x + 1)  # noqa: E731
    assert count(replayed_as_eagerly(one_row, x), "rows_kernel") == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [256, 264, 1000, 1024, 2048, 2056, 4096, 4104])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_norm_before_products(dtype, width, weighted):
    x, scale = drawn(1, width, seed=1, dtype=dtype), drawn(width, seed=2, dtype=dtype) if weighted else None
    matrices = [drawn(n, width, seed=n, dtype=dtype, scale=0.1) for n in (320, 64, 64)]

    def project(x):
        h = F.rms_norm(x + 1, (width,), scale, 1e-5)
        return [F.linear(h, m) for m in matrices]

    kernels = replayed_as_eagerly(project, x)
    alone = width == 256 or width > 4096  # rows of other lengths have another kernel
    assert count(kernels, "norm_rows") == alone
    assert count(kernels, "rows_kernel") == 1

    def with_the_norm(x):
        h = F.rms_norm(x + 1, (width,), scale)
        return F.linear(h, matrices[0]) + h.sum(), h

    replayed_as_eagerly(with_the_norm, x)


def written_norm(x, scale=None, eps=1e-5, square=lambda x: x.pow(2)):
    """rms_norm as programs write it out (transformers' LlamaRMSNorm)."""
    wide = x.to(mica.float32)
    wide = wide * mica.rsqrt(square(wide).mean(-1, keepdim=True) + eps)
    return wide.to(x.dtype) if scale is None else scale * wide.to(x.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [256, 264, 1000, 1024, 2048, 2056, 4096, 4104])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_norm_that_is_written_out_before_products(dtype, width, weighted):
    x, scale = drawn(1, 1, width, seed=1, dtype=dtype), drawn(width, seed=2, dtype=dtype) if weighted else None
    matrices = [drawn(n, width, seed=n, dtype=dtype, scale=0.1) for n in (320, 64, 64)]

    def project(x, square):
        h = written_norm(x, scale, square=square)
        return [F.linear(h, m) for m in matrices]

    alone = width == 256 or width > 4096  # the kernel of products normalises rows of other lengths
    for square in (lambda x: x.pow(2), lambda x: x * x):
        kernels = replayed_as_eagerly(lambda x, s=square: project(x, s), x)
        assert count(kernels, "rows_kernel") == 1
        assert count(kernels, "fused") == alone

    def with_the_norm(x):
        h = written_norm(x, scale)
        return F.linear(h, matrices[0]) + h.sum(), h

    replayed_as_eagerly(with_the_norm, x)


def test_steps_of_a_norm_that_somebody_asks_for():
    x, scale, weight = drawn(1, 1024, seed=1), drawn(1024, seed=2), drawn(64, 1024, seed=3, scale=0.1)

    def run(x, what):
        wide = x.float()
        squares = wide.pow(2)
        mean = squares.mean(-1, keepdim=True)
        root = mica.rsqrt(mean + 1e-6)
        scaled = wide * root
        rounded = scaled.to(x.dtype)
        return F.linear(scale * rounded, weight), (wide, squares, mean, root, scaled, rounded)[what] * 1

    for what in range(6):
        replayed_as_eagerly(lambda x, w=what: run(x, w), x)


@pytest.mark.parametrize(
    "norm",
    [
        lambda x, s: s * (x.float() * mica.rsqrt(x.float().pow(3).mean(-1, keepdim=True).abs() + 1e-5)).to(x.dtype),
        lambda x, s: s * (x.float() * mica.rsqrt(x.float().pow(2).sum(-1, keepdim=True) + 1e-5)).to(x.dtype),
        lambda x, s: (s.float() * (x.float() * mica.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5))).to(x.dtype),
        lambda x, s: s * (x.float() * mica.rsqrt(1e-5 + x.float().pow(2).mean(-1, keepdim=True))).to(x.dtype),
        lambda x, s: s * (x.float() / mica.sqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype),
        lambda x, s: (1 + s) * written_norm(x),
        lambda x, s: written_norm(x, s[:1]),
        lambda x, s: written_norm(x, s).mul_(2),
    ],
)
def test_norms_that_are_written_otherwise(norm):
    x, scale, weight = drawn(1, 1024, seed=1), drawn(1024, seed=2), drawn(64, 1024, seed=3, scale=0.1)
    replayed_as_eagerly(lambda x: F.linear(norm(x, scale), weight), x)


def layer(width=1024, inner=1000, dtype=mica.bfloat16, written=False):
    o, gate = drawn(width, width, seed=1, dtype=dtype, scale=0.05), drawn(inner, width, seed=2, dtype=dtype, scale=0.05)
    up, down = (
        drawn(inner, width, seed=3, dtype=dtype, scale=0.05),
        drawn(width, inner, seed=4, dtype=dtype, scale=0.05),
    )
    scale = drawn(width, seed=5, dtype=dtype)

    def run(x, a):
        x = x + F.linear(a + 0.5, o)
        h = written_norm(x, scale) if written else F.rms_norm(x, (width,), scale, 1e-5)
        return x + F.linear(F.silu(F.linear(h, gate)) * F.linear(h, up), down)

    return run


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_one_after_the_other(dtype, written):
    run = layer(dtype=dtype, written=written)

    def model(x, a):
        for _ in range(6):
            x = run(x, a)
        return x

    kernels = replayed_as_eagerly(model, drawn(1, 1, 1024, seed=7, dtype=dtype), drawn(1, 1, 1024, seed=8, dtype=dtype))
    assert count(kernels, "rows_kernel") == 18
    assert len(kernels) <= 18 + 6 + 2  # a + 0.5 each time


def test_a_row_that_is_changed_in_place():
    weight, scale = drawn(512, 512, seed=1, scale=0.1), drawn(512, seed=2)
    x = drawn(1, 512, seed=3)

    def run(x):
        x += F.linear(F.rms_norm(x, (512,), scale), weight)
        x += F.linear(x * 2, weight)
        return x * 1

    replayed_as_eagerly(run, x, changed=[x])


def test_a_result_that_is_changed_in_place():
    weight, x = drawn(640, 512, seed=1), drawn(1, 512, seed=3)

    def run(x):
        y = F.linear(x + 1, weight)
        kept = y * 1
        y.add_(2).relu_()
        return y, kept

    replayed_as_eagerly(run, x)


def test_matrices_that_the_function_writes():
    # The next product may ask for its matrix early only where nobody before it writes the matrix.
    first, x = drawn(64 * 512, 512, seed=1, scale=0.1), drawn(1, 512, seed=2)
    weight = drawn(512, 512, seed=3)

    def made(x):
        matrix = F.linear(x + 1, first).view(64, 512)
        return F.linear(x * 3, matrix) + 1

    def changed(x):
        for i in range(4):
            y = F.linear(x + i, weight)
            weight.mul_(-1)
            x = F.linear(y, weight) * 0.01
        return x

    replayed_as_eagerly(made, x)
    replayed_as_eagerly(changed, x, changed=[weight])


def test_loops_that_do_not_follow_columns():
    weight, x = drawn(512, 256, seed=1), drawn(1, 256, seed=2)
    cosine, wide = drawn(64, seed=3), drawn(4, 512, seed=4)

    def run(x):
        y = F.linear(x + 1, weight)
        heads = y.view(8, 64)
        return heads * cosine, heads.t() * 2, wide + y, y[:, 1:] + 1, y.float() * 0.5, y > 0, mica.cat([-y, y], -1)

    replayed_as_eagerly(run, x)


def test_a_loop_that_is_too_long():
    weight, x = drawn(512, 256, seed=1), drawn(1, 256, seed=2)
    others = [drawn(1, 512, seed=10 + i) for i in range(9)]

    def run(x):
        y = F.linear(x + 1, weight)
        for i, other in enumerate(others):
            y = y * other + i
        return y

    replayed_as_eagerly(run, x)
