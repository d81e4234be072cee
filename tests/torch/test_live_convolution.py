"""Convolutions of random shapes on torch and on Mica: results, gradients, layouts, errors."""

import inspect
import random

import mica
import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

DTYPES = {"float32": 2e-5, "float64": 1e-12, "bfloat16": 3e-2, "float16": 4e-3, "complex64": 2e-5, "complex128": 1e-12}


def draw(rng, dtype, *shape):
    """Values that every dtype holds exactly, as NumPy."""
    values = rng.integers(-8, 9, shape) / 8
    if dtype.startswith("complex"):
        values = values + 1j * rng.integers(-8, 9, shape) / 8
    return values


def given(lib, array, dtype, layout):
    array = array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)
    t = lib.tensor(array.tolist(), dtype=lib.complex128 if np.iscomplexobj(array) else lib.float64)
    t = t.reshape(array.shape).to(getattr(lib, dtype))
    if layout == "channels_last" and t.dim() in (4, 5):
        # to(memory_format=) may leave a tensor with dimensions of size one as it is
        form = lib.channels_last if t.dim() == 4 else lib.channels_last_3d
        t = lib.empty(t.shape, dtype=t.dtype, memory_format=form).copy_(t)
    if layout == "strided":
        t = lib.stack([t, t], -1)[..., 0]
    if layout == "transposed":
        t = t.transpose(-1, -2).contiguous().transpose(-1, -2)
    return t.detach().requires_grad_(t.dtype.is_floating_point or t.dtype.is_complex)


def compare(ours, theirs, tolerance):
    assert tuple(ours.shape) == tuple(theirs.shape) and str(ours.dtype) == str(theirs.dtype)
    ours, theirs = (
        np.asarray(t.detach().resolve_conj().to(getattr(lib, wide(t))).tolist())
        for lib, t in ((mica, ours), (torch, theirs))
    )
    scale = max(1.0, float(np.abs(theirs).max(initial=0)))
    assert np.abs(ours - theirs).max(initial=0) <= tolerance * scale


def wide(t):
    return "complex128" if t.dtype.is_complex else "float64" if t.dtype.is_floating_point else "int64"


def random_call(rng, dims, transposed):
    """Arguments of one convolution whose output is not empty."""
    while True:
        groups = int(rng.choice([1, 1, 1, 2, 3]))
        channels = groups * int(rng.choice([1, 2, 3, 5, 16, 19]))
        filters = groups * int(rng.choice([1, 2, 4, 9, 16, 33]))
        if rng.random() < 0.2:
            groups = channels
            filters = channels * int(rng.choice([1, 2]))
        batch = int(rng.choice([0, 1, 2, 3]))
        small = {1: 17, 2: 9, 3: 5}[dims]
        sizes = rng.integers(1, small + 1, dims).tolist()
        kernel = rng.integers(1, 5, dims).tolist() if rng.random() < 0.6 else [3] * dims
        stride, dilation = rng.integers(1, 4, dims).tolist(), rng.integers(1, 3, dims).tolist()
        if rng.random() < 0.5:
            stride, dilation = [1] * dims, [1] * dims
        padding = rng.integers(0, 4, dims).tolist()
        output_padding = [int(rng.integers(0, max(s, d))) for s, d in zip(stride, dilation, strict=True)]
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        if transposed:
            out = [
                (n - 1) * s - 2 * p + r + o
                for n, s, p, r, o in zip(sizes, stride, padding, reach, output_padding, strict=True)
            ]
        else:
            out = [
                (n + 2 * p - r) // s + 1 if n + 2 * p >= r else 0
                for n, p, r, s in zip(sizes, padding, reach, stride, strict=True)
            ]
        if min(out) >= 1:
            break
    weight = [channels, filters // groups, *kernel] if transposed else [filters, channels // groups, *kernel]
    keywords = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if transposed:
        keywords["output_padding"] = output_padding
    return [batch, channels, *sizes], weight, filters, keywords


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_random_convolutions(dims, transposed, seed):
    rng = np.random.default_rng(1000 * seed + 10 * dims + transposed)
    dtype = ["float32", "float64", "float32", "bfloat16", "float16", "complex64", "complex128"][seed % 7]
    layouts = random.Random(seed).choices(["plain", "channels_last", "strided", "transposed"], k=2)
    shape, weight_shape, filters, keywords = random_call(rng, dims, transposed)
    unbatched = rng.random() < 0.2
    arrays = [draw(rng, dtype, *(shape[1:] if unbatched else shape)), draw(rng, dtype, *weight_shape)]
    bias = draw(rng, dtype, filters) if rng.random() < 0.5 else None
    name = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    results = []
    for lib in (mica, torch):
        # torch's results in 16 bits now and then hold memory that nobody wrote.
        used = "float32" if lib is torch and dtype in ("bfloat16", "float16") else dtype
        x, w = (given(lib, a, used, layout) for a, layout in zip(arrays, layouts, strict=True))
        b = None if bias is None else given(lib, bias, used, "plain")
        y = getattr(lib.nn.functional, name)(x, w, b, **keywords)
        upstream = draw(np.random.default_rng(seed), dtype, *y.shape)
        y.backward(given(lib, upstream, used, "plain").detach())
        tensors = [y, x.grad, w.grad] + ([] if b is None else [b.grad])
        results.append([t.to(getattr(lib, dtype)) for t in tensors])
    (y, *grads), (expected, *expected_grads) = results
    compare(y, expected, DTYPES[dtype])
    if dims == 2 and not unbatched:
        assert y.is_contiguous() == expected.is_contiguous()
    for ours, theirs in zip(grads, expected_grads, strict=True):
        compare(ours, theirs, DTYPES[dtype])


@pytest.mark.parametrize(
    "shape, weight, keywords",
    [
        ((2, 16, 12, 13), (16, 16, 3, 3), {"padding": 1}),
        ((2, 20, 9, 8), (35, 20, 3, 3), {"padding": 2}),
        ((1, 64, 7, 7), (48, 64, 3, 3), {"padding": 0}),
        ((3, 17, 5, 30), (16, 17, 3, 3), {"padding": (0, 2)}),
        ((2, 3, 32, 31), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
        ((2, 24, 14, 14), (40, 24, 1, 1), {}),
        ((2, 24, 14, 14), (40, 24, 1, 1), {"stride": 2}),
        ((2, 32, 15, 15), (32, 1, 3, 3), {"padding": 1, "groups": 32}),
        ((2, 32, 15, 15), (64, 1, 5, 5), {"padding": 2, "stride": 2, "groups": 32}),
        ((2, 32, 15, 17), (32, 8, 3, 3), {"padding": 1, "groups": 4}),
        ((2, 16, 15, 17), (24, 16, 3, 3), {"padding": 2, "dilation": 2}),
        ((2, 16, 15, 17), (24, 16, 5, 4), {"padding": 2, "stride": (2, 3)}),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "layouts",
    [
        ("plain", "plain"),
        ("channels_last", "channels_last"),
        ("channels_last", "plain"),
        ("plain", "channels_last"),
        ("strided", "transposed"),
    ],
    ids="-".join,
)
def test_the_layers_of_networks(shape, weight, keywords, layouts):
    rng = np.random.default_rng(7)
    arrays, bias = (draw(rng, "float32", *shape), draw(rng, "float32", *weight)), draw(rng, "float32", weight[0])
    results = []
    for lib in (mica, torch):
        x, w = (given(lib, a, "float32", layout) for a, layout in zip(arrays, layouts, strict=True))
        b = given(lib, bias, "float32", "plain")
        y = lib.nn.functional.conv2d(x, w, b, **keywords)
        upstream = draw(np.random.default_rng(3), "float32", *y.shape)
        grads = lib.autograd.grad(y, (x, w, b), given(lib, upstream, "float32", "plain").detach())
        results.append((y, *grads))
    for ours, theirs in zip(*results, strict=True):
        compare(ours, theirs, 2e-6)
        if not any(s == 1 for s in theirs.shape) and layouts[0] != "strided":
            assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "bool", "uint16"])
@pytest.mark.parametrize("call", ["conv1d", "conv2d", "conv2d dilated", "conv3d", "conv_transpose2d", "unfold", "fold"])
def test_whole_numbers(dtype, call):
    def run(lib):
        def numbers(*shape):
            n = int(np.prod(shape))
            return (lib.arange(n) % 7).to(getattr(lib, dtype)).reshape(shape)

        F = lib.nn.functional
        if call == "unfold":
            return F.unfold(numbers(2, 3, 5, 5), 3)
        if call == "fold":
            return F.fold(numbers(2, 27, 9), 5, 3)
        dims = int(call.split()[0][-2])
        x, w = numbers(2, 4, *[5] * dims), numbers(4, 4, *[2] * dims)
        return getattr(F, call.split()[0])(x, w, **({"dilation": 2} if "dilated" in call else {}))

    try:
        expected = run(torch)
    except Exception as e:
        with pytest.raises(type(e)) as error:
            run(mica)
        assert str(error.value)[:20] == str(e)[:20]
        return
    ours = run(mica)
    assert ours.tolist() == expected.tolist() and str(ours.dtype) == str(expected.dtype)


def errors():
    x, w = (2, 4, 8, 8), (6, 4, 3, 3)
    yield "conv2d", (2, 3, 8, 8), w, {}
    yield "conv2d", x, w, {"groups": 2}
    yield "conv2d", (2, 6, 8, 8), (5, 3, 3, 3), {"groups": 2}
    yield "conv2d", x, w, {"groups": 0}
    yield "conv2d", x, w, {"groups": -1}
    yield "conv2d", (2, 4, 2, 2), w, {}
    yield "conv2d", x, w, {"padding": -1}
    yield "conv2d", x, w, {"stride": 0}
    yield "conv2d", x, w, {"stride": -1}
    yield "conv2d", x, w, {"dilation": 0}
    yield "conv2d", x, w, {"dilation": -1}
    yield "conv2d", x, w, {"stride": (1, 2, 3)}
    yield "conv2d", x, w, {"padding": "other"}
    yield "conv2d", x, w, {"padding": "same", "stride": 2}
    yield "conv2d", (8, 8), w, {}
    yield "conv2d", (1, 1, 1, 8, 8), w, {}
    yield "conv2d", x, (6, 4, 3), {}
    yield "conv2d", x, (0, 4, 3, 3), {}
    yield "conv2d", (2, 4, 0, 8), w, {"padding": 2}
    yield "conv1d", x, (6, 4, 3), {}
    yield "conv3d", (2, 2), (6, 4, 3, 3, 3), {}
    yield "conv_transpose2d", x, (5, 6, 3, 3), {}
    yield "conv_transpose2d", x, (4, 6, 3, 3), {"output_padding": 1}
    yield "conv_transpose2d", x, (4, 6, 3, 3), {"stride": 2, "output_padding": -1}
    yield "conv_transpose2d", x, (4, 6, 3, 3), {"groups": 3}
    yield "conv_transpose2d", (2, 2), (4, 6, 3, 3), {}


@pytest.mark.parametrize("name, shape, weight, keywords", list(errors()), ids=str)
def test_errors_begin_with_torchs_words(name, shape, weight, keywords):
    def run(lib):
        return getattr(lib.nn.functional, name)(lib.zeros(shape), lib.zeros(weight), **keywords)

    with pytest.raises(Exception) as expected:
        run(torch)
    with pytest.raises(expected.type) as error:
        run(mica)
    assert str(error.value)[:40] == str(expected.value)[:40]


@pytest.mark.parametrize("bias", [(5,), (1, 6)])
def test_bias_of_a_wrong_shape(bias):
    for name, weight in (("conv2d", (6, 4, 3, 3)), ("conv_transpose2d", (4, 6, 3, 3))):
        messages = []
        for lib in (torch, mica):
            with pytest.raises(RuntimeError) as error:
                getattr(lib.nn.functional, name)(lib.zeros(2, 4, 8, 8), lib.zeros(weight), lib.zeros(bias))
            messages.append(str(error.value))
        assert messages[0] == messages[1]


def fold_errors():
    image, columns = (2, 4, 8, 8), (2, 36, 36)
    yield "unfold", (1, 2, 3, 3), (5,), {}
    yield "unfold", (1, 1, 1, 3, 3), (2,), {}
    yield "unfold", image, (0,), {}
    yield "unfold", image, (2,), {"stride": 0}
    yield "unfold", image, (2,), {"dilation": 0}
    yield "unfold", image, (2,), {"padding": -1}
    yield "unfold", image, ((2, 2, 2),), {}
    yield "unfold", image, ((2,),), {}
    yield "unfold", (2, 0, 8, 8), (2,), {}
    yield "fold", (2, 36, 35), ((8, 8), 3), {}
    yield "fold", (2, 35, 36), ((8, 8), 3), {}
    yield "fold", (36,), ((8, 8), 3), {}
    yield "fold", (1, 1, 36, 36), ((8, 8), 3), {}
    yield "fold", columns, ((8, 8), 0), {}
    yield "fold", columns, ((8, 8), 3), {"stride": 0}
    yield "fold", columns, ((8,), 3), {}
    yield "fold", columns, ((-8, 8), 3), {}
    yield "fold", columns, ((2, 2), 3), {}


@pytest.mark.parametrize("name, shape, arguments, keywords", list(fold_errors()), ids=str)
def test_errors_of_sliding_blocks(name, shape, arguments, keywords):
    messages = []
    for lib in (torch, mica):
        with pytest.raises(RuntimeError) as error:
            getattr(lib.nn.functional, name)(lib.zeros(shape), *arguments, **keywords)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("seed", range(12))
def test_sliding_blocks(seed):
    rng = np.random.default_rng(seed)
    dtype = ["float32", "float64", "bfloat16", "complex64"][seed % 4]
    kernel, dilation, padding, stride = (rng.integers(low, 4, 2).tolist() for low in (1, 1, 0, 1))
    size = [d * (k - 1) + 1 + int(rng.integers(0, 6)) for d, k in zip(dilation, kernel, strict=True)]
    image = draw(rng, dtype, 2, 3, *size)
    layout = ["plain", "channels_last", "strided"][seed % 3]
    results = []
    for lib in (mica, torch):
        x = given(lib, image, dtype, layout)
        columns = lib.nn.functional.unfold(x, kernel, dilation, padding, stride)
        back = lib.nn.functional.fold(columns * columns, size, kernel, dilation, padding, stride)
        back.backward(lib.ones_like(back))
        results.append((columns, back, x.grad))
    for ours, theirs in zip(*results, strict=True):
        compare(ours, theirs, DTYPES[dtype])


MODULES = [
    "nn.Conv1d(4, 6, 3)",
    "nn.Conv2d(4, 6, (3, 2), stride=2, padding=(1, 0), dilation=(1, 2), groups=2, bias=False)",
    "nn.Conv2d(4, 4, 3, padding='same', padding_mode='reflect')",
    "nn.Conv2d(4, 4, (3, 4), padding='same', padding_mode='circular')",
    "nn.Conv2d(4, 4, 3, padding=(1, 2), padding_mode='replicate')",
    "nn.Conv3d(4, 2, 3, padding=1, padding_mode='replicate')",
    "nn.Conv3d(4, 2, 2, dtype=torch.float64)",
    "nn.ConvTranspose1d(4, 6, 3, 2, 1, 1)",
    "nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2, False, 2)",
    "nn.ConvTranspose3d(4, 3, 2)",
    "nn.LazyConv1d(3, 2)",
    "nn.LazyConv2d(6, 3, bias=False)",
    "nn.LazyConv3d(4, 2)",
    "nn.LazyConvTranspose1d(3, 2)",
    "nn.LazyConvTranspose2d(6, 3, bias=False)",
    "nn.LazyConvTranspose3d(4, 2)",
]


@pytest.mark.parametrize("text", MODULES)
def test_classes_from_one_seed(text):
    results = []
    for lib in (mica, torch):
        lib.manual_seed(3)
        module = eval(text, {"nn": lib.nn, "torch": lib})
        before = repr(module)
        dims = int(text[text.index("d(") - 1])
        y = module(lib.rand(2, 4, *[6] * dims).to(lib.float64 if "float64" in text else lib.float32))
        results.append((before, repr(module), {k: v.tolist() for k, v in module.state_dict().items()}, y))
    ours, theirs = results
    assert ours[:3] == theirs[:3]
    compare(ours[3], theirs[3], 2e-6)
    name = text[3 : text.index("(")]
    parameters = [inspect.signature(getattr(lib.nn, name)).parameters.values() for lib in (mica, torch)]
    assert [(p.name, p.default) for p in parameters[0]] == [(p.name, p.default) for p in parameters[1]]


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 3e38])
def test_what_is_not_finite_stays_where_it_is(value, groups):
    rng = np.random.default_rng(0)
    x, w = draw(rng, "float32", 2, 16, 12, 12) + 2, draw(rng, "float32", 16, 16 // groups, 3, 3) + 2
    results = []
    for lib in (mica, torch):
        image, weight = given(lib, x, "float32", "plain"), given(lib, w, "float32", "plain")
        with lib.no_grad():
            image[1, 3, 5, 6] = value
        y = lib.nn.functional.conv2d(image, weight, padding=1, groups=groups)
        y.sum().backward()
        results.append([np.asarray(t.detach().double().tolist()) for t in (y, image.grad, weight.grad)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_training_goes_the_same_way():
    losses = {}
    for lib in (mica, torch):
        nn = lib.nn
        lib.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2, groups=8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 6 * 6, 10),
        )
        x, y = lib.rand(32, 1, 16, 16), lib.randint(0, 10, (32,))
        optimizer = lib.optim.SGD(model.parameters(), lr=2e-2, momentum=0.9)
        losses[lib] = []
        for _ in range(50):
            optimizer.zero_grad()
            loss = nn.CrossEntropyLoss()(model(x), y)
            loss.backward()
            optimizer.step()
            losses[lib].append(loss.item())
    np.testing.assert_allclose(losses[mica], losses[torch], rtol=0, atol=1e-4)
    assert losses[mica][-1] < losses[mica][0]
