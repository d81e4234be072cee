"""Resampling: NumPy's interpolation, gradients, orders in memory, sampling at points, padding, errors."""

import itertools
import math

import mica
import mica.nn.functional as F
import numpy as np
import pytest
from mica import nn
from mica.autograd import gradcheck, gradgradcheck


def linear_weights(size, out, align_corners):
    """The matrix that interpolates an axis."""
    matrix = np.zeros((out, size))
    for o in range(out):
        if align_corners:
            x = o * (size - 1) / (out - 1) if out > 1 else 0.0
        else:
            x = max((o + 0.5) * size / out - 0.5, 0.0)
        first = min(int(x), size - 1)
        matrix[o, first] += 1 - (x - first)
        matrix[o, min(first + 1, size - 1)] += x - first
    return matrix


def along(values, matrix, axis):
    return np.moveaxis(np.tensordot(values, matrix, (axis, 1)), -1, axis)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(
    "mode,shape,size",
    [
        ("linear", (2, 3, 7), (19,)),
        ("bilinear", (2, 3, 7, 9), (4, 20)),
        ("trilinear", (1, 2, 3, 4, 5), (5, 2, 40)),
    ],
)
def test_linear_modes(mode, shape, size, align_corners):
    values = np.random.randn(*shape)
    expected = values
    for i, n in enumerate(size):
        expected = along(expected, linear_weights(shape[2 + i], n, align_corners), 2 + i)
    out = F.interpolate(mica.tensor(values), size, mode=mode, align_corners=align_corners)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-12, atol=1e-12)
    narrow = F.interpolate(mica.tensor(values, dtype=mica.float32), size, mode=mode, align_corners=align_corners)
    np.testing.assert_allclose(narrow.numpy(), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_modes(mode, dtype):
    values = np.random.randint(0, 256, (2, 3, 5, 8))
    out = F.interpolate(mica.tensor(values, dtype=getattr(mica, dtype)), (12, 3), mode=mode)
    shift = 0.5 if mode == "nearest-exact" else 0
    rows, columns = (np.floor((np.arange(n) + shift) * s / n).astype(int) for n, s in ((12, 5), (3, 8)))
    np.testing.assert_array_equal(out.double().numpy(), values[:, :, rows][..., columns])


def cubic_weights(size, out):
    """The matrix of a cubic convolution with the coefficient -0.75 and repeated ends."""
    matrix, a = np.zeros((out, size)), -0.75
    for o in range(out):
        x = (o + 0.5) * size / out - 0.5
        for i in range(math.floor(x) - 1, math.floor(x) + 3):
            d = abs(x - i)
            near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
            matrix[o, min(max(i, 0), size - 1)] += near if d <= 1 else far
    return matrix


@pytest.mark.parametrize("size", [(3, 20), (14, 5)])
def test_cubic_mode(size):
    values = np.random.randn(2, 3, 7, 9)
    expected = along(along(values, cubic_weights(7, size[0]), 2), cubic_weights(9, size[1]), 3)
    out = F.interpolate(mica.tensor(values), size, mode="bicubic")
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_antialiasing_keeps_constants(mode):
    out = F.interpolate(mica.full((1, 2, 31, 17), 3.5, dtype=mica.float64), (7, 20), mode=mode, antialias=True)
    mica.testing.assert_close(out, mica.full_like(out, 3.5))
    whole = F.interpolate(mica.full((1, 2, 31, 17), 200, dtype=mica.uint8), (7, 20), mode=mode, antialias=True)
    assert (whole == 200).all()


FUNCTIONS = {
    "nearest": (lambda x: F.interpolate(x, (5, 3)), (1, 2, 3, 4)),
    "nearest_exact": (lambda x: F.interpolate(x, scale_factor=1.7, mode="nearest-exact"), (1, 2, 5)),
    "linear": (lambda x: F.interpolate(x, 4, mode="linear"), (1, 2, 7)),
    "bilinear": (lambda x: F.interpolate(x, (5, 3), mode="bilinear"), (1, 2, 3, 4)),
    "bilinear_corners": (lambda x: F.interpolate(x, (5, 3), mode="bilinear", align_corners=True), (1, 2, 3, 4)),
    "bilinear_factors": (lambda x: F.interpolate(x, scale_factor=(1.4, 2.2), mode="bilinear"), (1, 2, 3, 4)),
    "bicubic": (lambda x: F.interpolate(x, (5, 3), mode="bicubic"), (1, 2, 3, 4)),
    "trilinear": (lambda x: F.interpolate(x, (3, 2, 5), mode="trilinear"), (1, 1, 2, 3, 4)),
    "area": (lambda x: F.interpolate(x, (2, 3), mode="area"), (1, 2, 3, 4)),
    "antialias": (lambda x: F.interpolate(x, (3, 3), mode="bicubic", antialias=True), (1, 1, 7, 5)),
    "lanczos": (lambda x: F.interpolate(x, (3, 7), mode="lanczos", antialias=True), (1, 1, 7, 5)),
    "reflect": (lambda x: F.pad(x, (1, 2, 2, 0), mode="reflect"), (1, 2, 3, 4)),
    "replicate": (lambda x: F.pad(x, (1, 2, 2, 0, 1, 1), mode="replicate"), (1, 1, 2, 3, 4)),
    "circular": (lambda x: F.pad(x, (1, 2), mode="circular"), (2, 4)),
    "affine_grid": (lambda x: F.affine_grid(x, (2, 1, 3, 4), align_corners=False), (2, 2, 3)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    function, shape = FUNCTIONS[name]
    x = mica.randn(shape, dtype=mica.float64, requires_grad=True)
    assert gradcheck(function, (x,)) and gradgradcheck(function, (x,))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_meta(name):
    function, shape = FUNCTIONS[name]
    out = function(mica.empty(shape, device="meta"))
    assert out.is_meta and out.shape == function(mica.zeros(shape)).shape


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_channels_last_stays(mode, dtype):
    x = mica.randn(2, 19, 5, 6).to(getattr(mica, dtype))
    last = x.to(memory_format=mica.channels_last).requires_grad_()
    x.requires_grad_()
    out, other = (F.interpolate(t, (9, 4), mode=mode) for t in (x, last))
    assert other.is_contiguous(memory_format=mica.channels_last)
    mica.testing.assert_close(other, out)
    (grad,), (last_grad,) = mica.autograd.grad(out.sum(), x), mica.autograd.grad(other.sum(), last)
    assert last_grad.is_contiguous(memory_format=mica.channels_last)
    mica.testing.assert_close(last_grad, grad)


# ---- sampling at points --------------------------------------------------------------------------------------------
GRIDS = list(itertools.product(["bilinear", "nearest", "bicubic"], ["zeros", "border", "reflection"], [False, True]))


@pytest.mark.parametrize("mode,padding,align_corners", GRIDS)
def test_points_at_elements_read_them(mode, padding, align_corners):
    x = mica.randn(2, 3, 5, 6, dtype=mica.float64)
    theta = mica.tensor([[1.0, 0, 0], [0, 1, 0]], dtype=mica.float64).expand(2, 2, 3)
    grid = F.affine_grid(theta, x.shape, align_corners)
    mica.testing.assert_close(F.grid_sample(x, grid, mode, padding, align_corners), x)


@pytest.mark.parametrize("mode,padding,align_corners", GRIDS)
@pytest.mark.parametrize("dims", [2, 3])
def test_gradients_of_points(mode, padding, align_corners, dims):
    if mode == "bicubic" and dims == 3:
        return
    x = mica.randn((1, 2, 3, 4, 5)[: dims + 2], dtype=mica.float64, requires_grad=True)
    # Away from the places where the derivative jumps.
    grid = (mica.rand(1, *(2, 3, 2)[:dims], dims, dtype=mica.float64) * 2.6 - 1.3).requires_grad_()
    assert gradcheck(lambda a, b: F.grid_sample(a, b, mode, padding, align_corners), (x, grid), eps=1e-7, atol=1e-4)


@pytest.mark.parametrize("mode,padding,align_corners", GRIDS)
@pytest.mark.parametrize("dims", [2, 3])
def test_second_gradients_of_points(mode, padding, align_corners, dims):
    if dims == 3 and mode == "bicubic":
        return
    image = mica.randn(1, 2, *(4, 3, 2)[:dims], dtype=mica.float64, requires_grad=True)
    grid = (mica.rand(1, *(2, 2, 1)[:dims], dims, dtype=mica.float64) * 2.6 - 1.3).requires_grad_()
    assert gradgradcheck(
        lambda x, g: F.grid_sample(x, g, mode, padding, align_corners), (image, grid), fast_mode=True, atol=1e-4
    )


def test_gradient_penalty_on_points():
    """Corners of the image lie where the border begins; the gradient there is that of outside."""
    image = mica.arange(12.0).reshape(1, 1, 3, 4).requires_grad_()
    grid = mica.tensor([[[[-1.0, -1.0], [0.5, 0.25], [1.0, 0.0]]]], requires_grad=True)
    read = F.grid_sample(image.square(), grid, padding_mode="border", align_corners=True)
    (slope,) = mica.autograd.grad(read.sum(), grid, create_graph=True)
    slope.square().sum().backward()
    assert slope.tolist() == [[[[0.0, 0.0], [22.5, 66.0], [0.0, 72.0]]]]
    assert grid.grad.tolist() == [[[[0.0, 0.0], [1584.0, 540.0], [0.0, 0.0]]]]
    assert image.grad[0, 0, 1:].tolist() == [[0.0, 0.0, -1795.5, -1769.25], [0.0, 0.0, 1642.5, 4265.25]]


@pytest.mark.parametrize("mode,padding,align_corners", GRIDS)
def test_short_floats_are_computed_in_float(mode, padding, align_corners):
    x, grid = mica.randn(2, 3, 5, 6).bfloat16(), (mica.rand(2, 4, 4, 2) * 3 - 1.5).bfloat16()
    out = F.grid_sample(x, grid, mode, padding, align_corners)
    assert mica.equal(out, F.grid_sample(x.float(), grid.float(), mode, padding, align_corners).bfloat16())


@pytest.mark.parametrize("mode,padding,align_corners", GRIDS)
@pytest.mark.parametrize("dims", [2, 3])
def test_wild_points_read_nothing_outside(mode, padding, align_corners, dims):
    if mode == "bicubic" and dims == 3:
        return
    wild = [math.nan, math.inf, -math.inf, 1e30, -1e30, 3e9, -3e9, 0.0, 1.0, -1.0]
    points = mica.tensor(list(itertools.product(wild, repeat=dims))).reshape(1, *([1] * (dims - 1)), -1, dims)
    x = mica.ones((1, 2, 4, 5, 6)[: dims + 2], requires_grad=True)
    points.requires_grad_()
    out = F.grid_sample(x, points, mode, padding, align_corners)
    known = out[~out.isnan()]
    assert ((known > -1e-4) & (known < 1 + 1e-4)).all()
    out.nan_to_num().sum().backward()


# ---- padding -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode,numpy_mode", [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "int64", "uint8", "bool", "complex64", "complex128"]
)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_padding(mode, numpy_mode, dtype, dims):
    values = np.random.randint(0, 99, (2, 3, 5, 6, 7)[: dims + 2])
    pads = [(1, 2), (3, 0), (2, 2)][:dims]
    x = mica.tensor(values).to(getattr(mica, dtype))
    if dtype == "bool" and mode != "circular":  # as torch
        with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
            F.pad(x, [n for pair in reversed(pads) for n in pair], mode=mode)
        return
    out = F.pad(x, [n for pair in reversed(pads) for n in pair], mode=mode)
    expected = np.pad(values, [(0, 0), (0, 0), *pads], mode=numpy_mode)
    assert mica.equal(out, mica.tensor(expected).to(x.dtype))


@pytest.mark.parametrize("mode,numpy_mode", [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
@pytest.mark.parametrize("pads", [(200, 17), (0, 40_000), (30_000, 0), (-5, 3)])
def test_padding_of_long_rows(mode, numpy_mode, pads):
    """Rows that threads share."""
    values = np.random.randint(0, 99, (3, 50_000)).astype(np.float32)
    kept = values[:, max(-pads[0], 0) :]
    expected = np.pad(kept, [(0, 0), (max(pads[0], 0), pads[1])], mode=numpy_mode)
    assert np.array_equal(F.pad(mica.tensor(values)[None], pads, mode=mode)[0].numpy(), expected)


def test_padding_takes_away_too():
    x = mica.arange(12.0).reshape(1, 2, 6)
    assert mica.equal(F.pad(x, (-1, 2), mode="replicate"), mica.cat([x[..., 1:], x[..., -1:], x[..., -1:]], -1))
    # What is taken away is no part of the circle.
    assert mica.equal(F.pad(x, (-2, 1), mode="circular"), mica.cat([x[..., 2:], x[..., 2:3]], -1))
    z = mica.randn(1, 2, 5, dtype=mica.complex128, requires_grad=True)
    assert gradcheck(lambda t: F.pad(t, (2, 1), mode="reflect"), (z,))


# ---- errors and modules --------------------------------------------------------------------------------------------
REFUSED = [
    (ValueError, "either size or scale_factor", lambda x: F.interpolate(x)),
    (ValueError, "only one of size or scale_factor", lambda x: F.interpolate(x, 2, 2)),
    (ValueError, "Input and output must have the same number", lambda x: F.interpolate(x, (2,))),
    (ValueError, "Input and scale_factor must have", lambda x: F.interpolate(x, scale_factor=(2, 2, 2))),
    (ValueError, "align_corners option can only be set", lambda x: F.interpolate(x, 2, align_corners=False)),
    (ValueError, "Anti-alias option is restricted", lambda x: F.interpolate(x, 2, antialias=True)),
    (ValueError, "Lanczos mode requires antialias", lambda x: F.interpolate(x, 2, mode="lanczos")),
    (NotImplementedError, "Got 4D input, but linear mode needs 3D", lambda x: F.interpolate(x, 2, mode="linear")),
    (NotImplementedError, "Input Error: Only 3D, 4D and 5D", lambda x: F.interpolate(x[0, 0], 2)),
    (RuntimeError, "Input and output sizes should be greater than 0", lambda x: F.interpolate(x, scale_factor=0.01)),
    (RuntimeError, "Non-empty 4D data tensor", lambda x: F.interpolate(x[:, :0], 3)),
    (
        RuntimeError,
        "grid_sampler\\(\\): expected grid to have size 2",
        lambda x: F.grid_sample(x, x, align_corners=True),
    ),
    (ValueError, "expected mode to be", lambda x: F.grid_sample(x, x, "cubic")),
    (RuntimeError, "numbers from 0 to 2", lambda x: mica.grid_sampler(x, x[..., :2], 7, 0, False)),
    (ValueError, "Expected non-zero, positive output size", lambda x: F.affine_grid(x[0], (1, 1, 0, 2), False)),
    (NotImplementedError, "Padding size 2 is not supported", lambda x: F.pad(x, (1, 1), mode="reflect")),
    (RuntimeError, "Padding value causes wrapping", lambda x: F.pad(x, (9, 0, 0, 0), mode="circular")),
]


@pytest.mark.parametrize("kind,words,call", REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_errors(kind, words, call):
    with pytest.raises(kind, match=words):
        call(mica.ones(1, 3, 2, 3))


def test_deprecated_names_warn():
    x = mica.randn(1, 2, 3, 4)
    with pytest.warns(UserWarning, match="`nn.functional.upsample` is deprecated"):
        out = F.upsample(x, scale_factor=2)
    assert mica.equal(out, F.interpolate(x, scale_factor=2))
    with pytest.warns(UserWarning, match="Default grid_sample and affine_grid behavior"):
        F.grid_sample(x, mica.zeros(1, 2, 2, 2))


def test_modules():
    x = mica.randn(1, 2, 3, 4)
    assert mica.equal(
        nn.Upsample(scale_factor=2, mode="bilinear")(x), F.interpolate(x, scale_factor=2, mode="bilinear")
    )
    assert mica.equal(nn.UpsamplingBilinear2d(7)(x), F.interpolate(x, 7, mode="bilinear", align_corners=True))
    assert nn.UpsamplingNearest2d(scale_factor=3)(x).shape == (1, 2, 9, 12)
    assert repr(nn.Upsample(scale_factor=(2, 3))) == "Upsample(scale_factor=(2.0, 3.0), mode='nearest')"
    assert repr(nn.Upsample((4, 5), mode="bicubic")) == "Upsample(size=(4, 5), mode='bicubic')"


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(5, 2), (7, 2), (2, 4), (1, 1)])
def test_gradients_of_halved_axes(size, channels):
    """Every input has one tap, whose weight is a half."""
    x = mica.randn(2, channels, 4, 4, dtype=mica.float64, requires_grad=True)
    assert gradcheck(lambda t: F.interpolate(t, size, mode="bilinear"), (x,))
    last = x.detach().contiguous(memory_format=mica.channels_last).requires_grad_()
    assert gradcheck(lambda t: F.interpolate(t, size, mode="bilinear"), (last,))


def test_operators_with_out():
    """`torch._C._nn.upsample_*` write to `out`, which keeps its strides where it has the shape."""
    x = mica.arange(4.0).view(1, 1, 2, 2)
    operator = mica.ops.aten.upsample_nearest2d
    out = mica.empty(1, 1, 4, 4).to(memory_format=mica.channels_last)
    strides = out.stride()
    assert operator(x, (4, 4), out=out) is out and out.stride() == strides
    assert mica.equal(out, operator(x, (4, 4)))
    assert operator(x, (4, 4), out=mica.empty(0)).shape == (1, 1, 4, 4)
    with pytest.raises(RuntimeError, match="to have dtype torch.float32 but got torch.float64"):
        operator(x, (4, 4), out=mica.empty(0, dtype=mica.float64))
    with pytest.raises(RuntimeError, match="Attempting to copy from device cpu to device meta"):
        operator(x, (4, 4), out=mica.empty(0, device="meta"))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        operator(x.requires_grad_(), (4, 4), out=mica.empty(0))


def test_the_number_of_an_empty_tensor():
    with pytest.raises(RuntimeError, match="Empty tensor not supported"):
        mica.ops.aten._local_scalar_dense(mica.empty(0))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["reflection", "replication"])
def test_operators_of_padding(kind, dims):
    operator = getattr(mica.ops.aten, f"{kind}_pad{dims}d")
    x = mica.arange(4.0**dims).view(1, *([4] * dims))
    mode = "reflect" if kind == "reflection" else "replicate"
    assert mica.equal(operator(x, [1] * 2 * dims), F.pad(x, [1] * 2 * dims, mode))
    for padding in ([], [1] * (2 * dims + 1)):
        with pytest.raises(RuntimeError, match=f"padding size is expected to be {2 * dims}"):
            operator(mica.ones(2), padding)
