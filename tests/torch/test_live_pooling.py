"""Pooling and resampling on torch and on Mica: values, indices, gradients, orders in memory, modules and messages."""

import itertools
import warnings

import mica
import numpy as np
import pytest
from pooling_calls import CALLS, REFUSED

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 1.6e-2, "float16": 2e-3}


def data(shape, seed=0, ties=False):
    values = np.random.RandomState(seed).randn(*shape)
    return np.round(values) if ties else values


def make(module, values, dtype="float64", channels_last=False):
    x = module.tensor(values, dtype=getattr(module, dtype))
    if channels_last:
        x = x.to(memory_format=module.channels_last if x.dim() == 4 else module.channels_last_3d)
    return x


def call(module, text, x, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = eval(f"F.{text}", {"F": module.nn.functional, "x": x, "float": float, **more})
    return out if isinstance(out, tuple) else (out,)


def numbers(t):
    t = t.detach()
    return t.double().numpy() if t.is_floating_point() else t.numpy()


def same(theirs, ours, dtype, what=""):
    assert tuple(theirs.shape) == tuple(ours.shape) and str(theirs.dtype)[6:] == str(ours.dtype).split(".")[-1]
    tolerance = TOLERANCE.get(dtype, 0)
    np.testing.assert_allclose(numbers(ours), numbers(theirs), rtol=tolerance, atol=tolerance, err_msg=what)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("text,shape", CALLS, ids=lambda v: str(v).replace(" ", ""))
def test_values_and_gradients(text, shape, dtype, channels_last):
    if channels_last and len(shape) not in (4, 5):
        pytest.skip("no such order")
    values = data(shape)
    x, y = (make(m, values, dtype, channels_last).requires_grad_() for m in (torch, mica))
    try:
        theirs = call(torch, text, x)
    except (RuntimeError, NotImplementedError):
        return  # torch lacks the dtype
    ours = call(mica, text, y)
    for a, b in zip(theirs, ours, strict=True):
        same(a, b, dtype, text)
        if a.numel() > 1 and "adaptive_avg_pool2d(x, 1)" not in text:
            assert a.is_contiguous() == b.is_contiguous(), (a.stride(), b.stride())
    upstream = data(theirs[0].shape, 1)
    try:
        theirs[0].backward(make(torch, upstream, dtype))
    except (RuntimeError, NotImplementedError):
        return
    ours[0].backward(make(mica, upstream, dtype))
    same(x.grad, y.grad, dtype, f"gradient of {text}")


SECOND_ORDER = [c for c in CALLS if c[0].startswith(("max_pool", "avg_pool", "adaptive", "interpolate"))]


@pytest.mark.parametrize("text,shape", SECOND_ORDER, ids=lambda v: str(v).replace(" ", ""))
def test_second_derivatives(text, shape):
    results = []
    for module in (torch, mica):
        x = make(module, data(shape)).requires_grad_()
        upstream = make(module, data(call(module, text, x)[0].shape, 1)).requires_grad_()
        try:
            out = (call(module, text, x)[0] * upstream).sum()
            (first,) = module.autograd.grad(out, x, create_graph=True)
            (first * first).sum().backward()
        except RuntimeError:
            assert module is torch
            return
        results.append((first, upstream.grad))
    for theirs, ours in zip(*results, strict=True):
        same(theirs, ours, "float64", text)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("text", ["max_pool2d(x, 3, 2, 1, return_indices=True)", "max_pool2d(x, 2, 1, 1)"])
def test_ties_and_integers(text, dtype, channels_last):
    values = np.abs(data((2, 3, 11, 45), ties=True)) if dtype == "uint8" else data((2, 3, 11, 45), ties=True)
    try:
        theirs = call(torch, text, make(torch, values, dtype, channels_last))
    except RuntimeError:
        return  # torch cannot count the places of a plane in the elements' own type
    ours = call(mica, text, make(mica, values, dtype, channels_last))
    for a, b in zip(theirs, ours, strict=True):
        same(a, b, "exact")


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("text", ["max_pool2d(x, 3, 2, 1, return_indices=True)", "adaptive_max_pool2d(x, 3, True)"])
def test_nan_and_infinities(text, channels_last):
    values = data((2, 3, 11, 45))
    values[0, 0, 3:6, 4:9] = np.nan
    values[0, 1] = -np.inf
    values[1, :, :, ::7] = np.inf
    theirs, ours = (call(m, text, make(m, values, "float32", channels_last)) for m in (torch, mica))
    for a, b in zip(theirs, ours, strict=True):
        same(a, b, "exact")


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling(dims):
    shape, values = (2, 3, 8, 10, 6)[: dims + 2], data((2, 3, 8, 10, 6)[: dims + 2])
    grads = []
    for module in (torch, mica):
        f = module.nn.functional
        x = make(module, values).requires_grad_()
        pool, unpool = getattr(f, f"max_pool{dims}d"), getattr(f, f"max_unpool{dims}d")
        out, where = pool(x, 2, return_indices=True)
        back = unpool(out, where, 2, output_size=shape)
        back.square().sum().backward()
        grads.append((back, x.grad))
    for theirs, ours in zip(*grads, strict=True):
        same(theirs, ours, "float64")


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("dims", [2, 3])
def test_fractional_pooling_draws_as_torch(dims, dtype):
    values, results = data((2, 3, 13, 12, 11)[: dims + 2]), []
    for module in (torch, mica):
        module.manual_seed(3)
        pool = getattr(module.nn.functional, f"fractional_max_pool{dims}d")
        results.append(pool(make(module, values, dtype), 3, output_ratio=(0.5, 0.6, 0.4)[:dims], return_indices=True))
    for theirs, ours in zip(*results, strict=True):
        same(theirs, ours, "exact")


GRIDS = [
    case
    for case in itertools.product(
        ["bilinear", "nearest", "bicubic"],
        ["zeros", "border", "reflection"],
        [False, True],
        [2, 3],
        ["float64", "float32"],
    )
    if not (case[0] == "bicubic" and case[3] == 3)
]


@pytest.mark.parametrize("mode,padding,align,dims,dtype", GRIDS)
def test_grid_sample(mode, padding, align, dims, dtype):
    image, grid = data((2, 3, 5, 6, 7)[: dims + 2]), 0.8 * data((2, 4, 5, 3, dims)[: dims + 1] + (dims,), 2)
    results = []
    for module in (torch, mica):
        x, points = make(module, image, dtype).requires_grad_(), make(module, grid, dtype).requires_grad_()
        out = module.nn.functional.grid_sample(x, points, mode, padding, align)
        out.backward(make(module, data(tuple(out.shape), 1), dtype))
        results.append((out, x.grad, points.grad))
    for theirs, ours in zip(*results, strict=True):
        same(theirs, ours, dtype, f"{mode} {padding}")


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("dims", [2, 3])
def test_wild_points_read_no_foreign_memory(mode, padding, dims):
    if mode == "bicubic" and dims == 3:
        return
    wild = [np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, -3e9, 1e6, 0.0, 1.0, -1.0]
    grid = np.array(list(itertools.product(wild, repeat=dims)))[None, None]
    grid = grid if dims == 2 else grid[:, None]
    for align in (False, True):
        out = mica.nn.functional.grid_sample(
            mica.ones((1, 2, 4, 5, 6)[: dims + 2]), mica.tensor(grid, dtype=mica.float32), mode, padding, align
        )
        finite = out[~out.isnan()]
        assert ((finite > -1e-5) & (finite < 1 + 1e-5)).all()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "interpolate(x, scale_factor=2)",
        "interpolate(x, (5, 20), mode='nearest-exact')",
        "interpolate(x, (20, 31), mode='bilinear')",
        "interpolate(x, (5, 7), mode='bilinear', align_corners=True)",
        "interpolate(x, (20, 31), mode='bicubic')",
        "interpolate(x, (5, 7), mode='bilinear', antialias=True)",
        "interpolate(x, (5, 7), mode='bicubic', antialias=True)",
        "interpolate(x, (5, 33), mode='lanczos', antialias=True)",
    ],
)
def test_bytes(text, channels_last):
    values = np.random.RandomState(0).randint(0, 256, (2, 3, 11, 17))
    theirs, ours = (call(m, text, make(m, values, "uint8", channels_last))[0] for m in (torch, mica))
    same(theirs, ours, "exact")


MODULES = [
    "MaxPool1d(3)",
    "MaxPool2d(3, 2, 1)",
    "MaxPool3d((2, 1, 2), ceil_mode=True)",
    "MaxUnpool1d(2)",
    "MaxUnpool2d((2, 3), 2)",
    "MaxUnpool3d(2)",
    "AvgPool1d(3, 2)",
    "AvgPool2d(3, 2, 1)",
    "AvgPool3d(2, divisor_override=3)",
    "FractionalMaxPool2d(2, output_size=3)",
    "FractionalMaxPool3d(2, output_ratio=0.5)",
    "LPPool1d(2, 3)",
    "LPPool2d(1.5, (3, 2), 2)",
    "LPPool3d(2, 2, ceil_mode=True)",
    "AdaptiveMaxPool1d(3)",
    "AdaptiveMaxPool2d((3, None))",
    "AdaptiveMaxPool3d(2)",
    "AdaptiveAvgPool1d(3)",
    "AdaptiveAvgPool2d((None, 3))",
    "AdaptiveAvgPool3d(2)",
    "Upsample(scale_factor=2)",
    "Upsample(scale_factor=(2, 3), mode='bilinear')",
    "Upsample(size=(4, 5), mode='bicubic', align_corners=True)",
    "UpsamplingNearest2d(scale_factor=2)",
    "UpsamplingBilinear2d(size=7)",
    "PixelShuffle(2)",
    "PixelUnshuffle(2)",
    "ChannelShuffle(2)",
    "LocalResponseNorm(3)",
    "CrossMapLRN2d(3, 0.2, 0.5, 2)",
    "CrossMapLRN2d(4, 0.2, 0.5, 2)",
]


@pytest.mark.parametrize("text", MODULES)
def test_modules(text):
    theirs, ours = eval(f"torch.nn.{text}"), eval(f"mica.nn.{text}")
    assert repr(theirs) == repr(ours)
    public = {k: v for k, v in vars(theirs).items() if not k.startswith("_") and k != "training"}
    assert public == {k: v for k, v in vars(ours).items() if not k.startswith("_") and k != "training"}
    assert getattr(type(theirs), "__constants__", None) == getattr(type(ours), "__constants__", None)
    assert list(theirs.state_dict()) == list(ours.state_dict())
    if "Unpool" in text:
        return
    dims = 1 if "1d" in text else 3 if "3d" in text else 2
    results = []
    for module, layer in ((torch, theirs), (mica, ours)):
        module.manual_seed(0)
        x = make(module, data((2, 8, 6, 8, 6)[: dims + 2])).requires_grad_()
        x = x.abs() + 0.1 if "LPPool" in text else x
        x.retain_grad()
        out = layer(x)
        out.backward(make(module, data(tuple(out.shape), 1)))
        results.append((out, x.grad))
    for a, b in zip(*results, strict=True):
        same(a, b, "float64", text)


@pytest.mark.parametrize("text,shape", REFUSED, ids=lambda v: str(v).replace(" ", ""))
def test_messages(text, shape):
    with pytest.raises(Exception) as theirs:
        call(torch, text, make(torch, data(shape)))
    with pytest.raises(theirs.type) as ours:
        call(mica, text, make(mica, data(shape)))
    words = 5
    assert str(theirs.value).split()[:words] == str(ours.value).split()[:words], str(ours.value)
