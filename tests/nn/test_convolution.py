"""Convolutions against sums written out in NumPy; derivatives, layouts, classes, errors."""

import itertools

import mica
import mica.nn.functional as F
import numpy as np
import pytest
from mica import nn


def tensor(array, dtype=mica.float64):
    return mica.tensor(array.tolist(), dtype=dtype).reshape(array.shape)


def each(value, dims):
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * dims


def convolve(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    """A convolution by its definition: tap by tap."""
    dims = x.ndim - 2
    stride, padding, dilation = (each(v, dims) for v in (stride, padding, dilation))
    x = np.pad(x, [(0, 0), (0, 0)] + [(p, p) for p in padding])
    out = [
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], stride, dilation, strict=True)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *out), dtype=np.result_type(x, w))
    per_group, filters = w.shape[1], w.shape[0] // groups
    for tap in itertools.product(*(range(k) for k in w.shape[2:])):
        places = tuple(
            slice(t * d, t * d + s * (n - 1) + 1, s) for t, d, s, n in zip(tap, dilation, stride, out, strict=True)
        )
        for g in range(groups):
            part = x[(slice(None), slice(g * per_group, (g + 1) * per_group), *places)]
            weights = w[(slice(g * filters, (g + 1) * filters), slice(None), *tap)]
            y[:, g * filters : (g + 1) * filters] += np.einsum("nc...,fc->nf...", part, weights)
    return y if b is None else y + b.reshape(1, -1, *[1] * dims)


def transpose_convolve(x, w, b=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The adjoint: every input spreads its filter over the output."""
    dims = x.ndim - 2
    stride, padding, output_padding, dilation = (each(v, dims) for v in (stride, padding, output_padding, dilation))
    sizes = zip(x.shape[2:], w.shape[2:], stride, dilation, output_padding, strict=True)
    whole = [(n - 1) * s + d * (k - 1) + 1 + o for n, k, s, d, o in sizes]
    per_group, filters = x.shape[1] // groups, w.shape[1]
    y = np.zeros((x.shape[0], filters * groups, *whole), dtype=np.result_type(x, w))
    for tap in itertools.product(*(range(k) for k in w.shape[2:])):
        places = tuple(
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(tap, dilation, stride, x.shape[2:], strict=True)
        )
        for g in range(groups):
            part = x[:, g * per_group : (g + 1) * per_group]
            weights = w[(slice(g * per_group, (g + 1) * per_group), slice(None), *tap)]
            y[(slice(None), slice(g * filters, (g + 1) * filters), *places)] += np.einsum(
                "nc...,cf->nf...", part, weights
            )
    y = y[(slice(None), slice(None), *(slice(p, n - p) for p, n in zip(padding, whole, strict=True)))]
    return y if b is None else y + b.reshape(1, -1, *[1] * dims)


CASES = [
    (1, (2, 3, 9), (4, 3, 3), {}),
    (1, (2, 4, 9), (6, 2, 2), {"stride": 2, "padding": 1, "groups": 2}),
    (2, (2, 3, 6, 7), (5, 3, 3, 2), {"padding": (2, 1)}),
    (2, (1, 4, 9, 8), (4, 2, 3, 3), {"stride": (2, 1), "padding": 1, "dilation": (1, 2), "groups": 2}),
    (2, (2, 6, 7, 7), (12, 1, 3, 3), {"padding": 1, "groups": 6}),
    (2, (2, 6, 9, 9), (6, 1, 5, 5), {"stride": 2, "padding": 2, "groups": 6}),
    (2, (1, 2, 97, 83), (4, 1, 3, 3), {"padding": (1, 2), "groups": 2}),
    (2, (1, 2, 101, 130), (2, 1, 4, 5), {"stride": 2, "padding": (3, 1), "groups": 2}),
    (2, (1, 2, 180, 50), (2, 1, 5, 3), {"stride": (1, 2), "padding": (9, 1), "dilation": (3, 1), "groups": 2}),
    (2, (2, 17, 9, 10), (18, 17, 3, 3), {"padding": 1}),
    (2, (2, 16, 5, 21), (20, 16, 3, 3), {"padding": (0, 2)}),
    (2, (2, 3, 24, 45), (9, 3, 5, 7), {"stride": 2, "padding": (2, 3)}),
    (2, (2, 8, 5, 5), (16, 8, 1, 1), {}),
    (2, (2, 8, 7, 6), (16, 8, 1, 1), {"stride": 2}),
    (2, (1, 9, 8, 8), (10, 9, 4, 2), {"stride": 3, "padding": 1}),
    (2, (1, 2, 4, 4), (8, 2, 3, 3), {"padding": 4}),
    (2, (1, 65, 3, 3), (512, 65, 3, 3), {"padding": 1}),
    (2, (3, 512, 5, 6), (17, 512, 1, 1), {}),
    (2, (2, 70, 10, 13), (43, 70, 1, 1), {}),
    (2, (1, 64, 14, 14), (96, 64, 1, 1), {}),
    (2, (1, 40, 7, 7), (33, 40, 3, 3), {"padding": 1}),
    (2, (1, 192, 6, 5), (160, 192, 3, 3), {"stride": 2, "padding": 1}),
    (2, (2, 33, 9, 15), (22, 33, 3, 3), {"stride": 2, "padding": 1}),
    (2, (1, 40, 9, 16), (30, 40, 1, 1), {"stride": 2}),
    (3, (1, 3, 4, 5, 4), (4, 3, 2, 3, 2), {"padding": 1, "stride": (1, 2, 1)}),
    (3, (2, 4, 4, 5, 22), (18, 2, 3, 2, 3), {"padding": (1, 0, 1), "dilation": (2, 1, 1), "groups": 2}),
    (3, (2, 9, 5, 4, 21), (33, 9, 2, 3, 2), {"padding": (2, 1, 0), "stride": (2, 1, 1)}),
]
LAYOUTS = ["contiguous", "channels_last", "strided"]


def laid_out(t, layout):
    if layout == "channels_last" and t.dim() > 3:
        form = mica.channels_last if t.dim() == 4 else mica.channels_last_3d
        return mica.empty(t.shape, dtype=t.dtype, memory_format=form).copy_(t)
    return mica.stack([t, t], -1)[..., 0] if layout == "strided" else t


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "bfloat16", "float16"])
@pytest.mark.parametrize("dims, shape, weight, keywords", CASES, ids=str)
def test_convolution(dims, shape, weight, keywords, dtype, layout):
    rng = np.random.default_rng(0)
    x, w, b = (rng.integers(-4, 5, s) / 4 for s in (shape, weight, weight[:1]))
    if dtype == "complex128":
        x, w = x + 1j * rng.integers(-4, 5, shape) / 4, w - 1j * rng.integers(-4, 5, weight) / 4
    expected = convolve(x, w, b, **keywords)
    d = getattr(mica, dtype)
    wide = mica.complex128 if dtype == "complex128" else mica.float64
    given = [laid_out(tensor(a, wide).to(d), layout) for a in (x, w)]
    y = getattr(F, f"conv{dims}d")(*given, tensor(b, wide).to(d), **keywords)
    assert y.dtype == d and y.shape == expected.shape
    tolerance = {"float32": 1e-6, "float64": 1e-14, "complex128": 1e-14, "bfloat16": 8e-3, "float16": 1e-3}[dtype]
    error = np.abs(np.asarray(y.to(wide).tolist()) - expected).max()
    assert error <= tolerance * np.abs(expected).max()


TRANSPOSED = [
    (1, (2, 4, 5), (4, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    (2, (2, 4, 5, 4), (4, 3, 3, 2), {}),
    (2, (1, 4, 4, 5), (4, 3, 3, 3), {"stride": (2, 3), "padding": 1, "output_padding": (1, 2), "groups": 2}),
    (2, (1, 16, 4, 5), (16, 17, 3, 3), {"padding": 1}),
    (2, (1, 16, 4, 5), (16, 9, 4, 4), {"stride": 2, "padding": 1}),
    (2, (1, 16, 6, 5), (16, 9, 2, 2), {"stride": 3, "padding": 0}),
    (2, (2, 6, 4, 5), (6, 2, 3, 3), {"stride": 2, "padding": 1, "groups": 6}),
    (2, (1, 3, 4, 4), (3, 8, 3, 3), {"dilation": 2, "stride": 2, "output_padding": 1}),
    (3, (1, 2, 3, 2, 3), (2, 3, 2, 2, 3), {"stride": 2}),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("dims, shape, weight, keywords", TRANSPOSED, ids=str)
def test_transposed_convolution(dims, shape, weight, keywords, dtype, layout):
    rng = np.random.default_rng(0)
    filters = weight[1] * keywords.get("groups", 1)
    x, w, b = (rng.integers(-4, 5, s) / 4 for s in (shape, weight, (filters,)))
    expected = transpose_convolve(x, w, b, **keywords)
    d = getattr(mica, dtype)
    given = [laid_out(tensor(a).to(d), layout) for a in (x, w)]
    y = getattr(F, f"conv_transpose{dims}d")(*given, tensor(b).to(d), **keywords)
    assert y.dtype == d and y.shape == expected.shape
    error = np.abs(np.asarray(y.double().tolist()) - expected).max()
    assert error <= {"float32": 1e-6, "float64": 1e-14, "bfloat16": 8e-3}[dtype] * np.abs(expected).max()


@pytest.mark.parametrize("dims, shape, weight, keywords", CASES, ids=str)
def test_gradients_of_float32_are_those_of_float64(dims, shape, weight, keywords):
    """float64 takes the general way, float32 the fast ones."""
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s) for s in (shape, weight, weight[:1])]
    results = {}
    for dtype, layout in itertools.product((mica.float32, mica.float64), LAYOUTS[:2]):
        inputs = [laid_out(tensor(a, dtype), layout).detach().requires_grad_() for a in arrays]
        y = getattr(F, f"conv{dims}d")(*inputs, **keywords)
        upstream = tensor(np.random.default_rng(2).standard_normal(tuple(y.shape)), dtype)
        results[dtype, layout] = [y, *mica.autograd.grad(y, inputs, upstream)]
    exact = results[mica.float64, "contiguous"]
    for key, got in results.items():
        for ours, theirs in zip(got, exact, strict=True):
            error = (ours.double() - theirs).abs().max().item()
            assert error <= (3e-6 if key[0] == mica.float32 else 1e-13) * max(1, theirs.abs().max().item())


def small(dims, keywords, transposed=False):
    groups = keywords.get("groups", 1)
    x = mica.randn(2, 2 * groups, *[4] * dims, dtype=mica.float64)
    w = mica.randn(*((2 * groups, 1) if transposed else (groups, 2)), *[2] * dims, dtype=mica.float64)
    b = mica.randn(groups, dtype=mica.float64)
    return tuple(t.requires_grad_() for t in (x, w, b))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("keywords", [{}, {"stride": 2, "padding": 1}, {"groups": 2, "dilation": 2}], ids=str)
def test_first_and_second_derivatives(dims, keywords, transposed):
    if dims == 3 and keywords.get("groups"):
        keywords = {"groups": 2}
    function = getattr(F, f"conv_transpose{dims}d" if transposed else f"conv{dims}d")
    inputs = small(dims, keywords, transposed)
    assert mica.autograd.gradcheck(lambda x, w, b: function(x, w, b, **keywords), inputs)
    assert mica.autograd.gradgradcheck(lambda x, w, b: function(x, w, b, **keywords), inputs)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_as_functions(dims):
    x = mica.randn(2, 4, *(6, 5, 7)[:dims], requires_grad=True)
    weight = mica.randn(6, 2, *(2, 3, 1)[:dims], requires_grad=True)
    y = getattr(F, f"conv{dims}d")(x, weight, None, 2, 1, 1, 2)
    grad = mica.randn_like(y)
    by_input, by_weight = (getattr(nn.grad, f"conv{dims}d_{part}") for part in ("input", "weight"))
    ours = by_input(x.shape, weight, grad, 2, 1, 1, 2), by_weight(x.detach(), weight.shape, grad, 2, 1, 1, 2)
    for a, b in zip(ours, mica.autograd.grad(y, (x, weight), grad), strict=True):
        mica.testing.assert_close(a.detach(), b)
    assert [a.requires_grad for a in ours] == [True, False]


def test_complex_derivatives():
    x, w = (mica.randn(s, dtype=mica.complex128).requires_grad_() for s in ((1, 2, 4, 3), (2, 2, 2, 2)))
    assert mica.autograd.gradcheck(lambda x, w: F.conv2d(x, w, stride=(1, 2)), (x, w))
    assert mica.autograd.gradgradcheck(lambda x, w: F.conv2d(x, w), (x, w))


def test_derivatives_of_sliding_blocks():
    x = mica.randn(2, 2, 5, 4, dtype=mica.float64).requires_grad_()
    assert mica.autograd.gradcheck(lambda x: F.unfold(x, (2, 3), 1, (0, 1), 2), (x,))
    assert mica.autograd.gradgradcheck(lambda x: F.unfold(x, 2), (x,))
    columns = mica.randn(8, 12, dtype=mica.float64).requires_grad_()
    assert mica.autograd.gradcheck(lambda c: F.fold(c, (4, 5), 2), (columns,))


def test_fold_undoes_unfold_up_to_the_overlaps():
    x = mica.rand(2, 3, 6, 6)
    ones = F.fold(F.unfold(mica.ones_like(x), 3, padding=1), 6, 3, padding=1)
    mica.testing.assert_close(F.fold(F.unfold(x, 3, padding=1), 6, 3, padding=1), x * ones)


def test_layout_follows_input_or_weight():
    x, w = mica.rand(2, 4, 6, 6), mica.rand(8, 4, 3, 3)
    last = {"memory_format": mica.channels_last}
    for a, b in ((x, w.contiguous(**last)), (x.contiguous(**last), w), (x.contiguous(**last), w.contiguous(**last))):
        y = F.conv2d(a, b)
        assert y.is_contiguous(**last) and not y.is_contiguous()
        mica.testing.assert_close(y, F.conv2d(x, w).contiguous(**last))
    assert F.conv2d(x, w).is_contiguous()


def test_expanded_input():
    x, w = mica.rand(1, 4, 6, 6), mica.rand(8, 4, 3, 3)
    mica.testing.assert_close(F.conv2d(x.expand(3, 4, 6, 6), w), F.conv2d(x.repeat(3, 1, 1, 1), w))


def test_empty_batches():
    w = mica.rand(8, 4, 3, 3).requires_grad_()
    x = mica.rand(0, 4, 6, 6).requires_grad_()
    y = F.conv2d(x, w)
    assert y.shape == (0, 8, 4, 4)
    y.sum().backward()
    assert x.grad.shape == x.shape and w.grad.shape == w.shape and w.grad.abs().sum().item() == 0
    assert F.conv_transpose2d(x, mica.rand(4, 8, 3, 3)).shape == (0, 8, 8, 8)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_same_padding():
    x = mica.rand(2, 3, 9, 8)
    for kernel, dilation in (((3, 3), 1), ((4, 2), 1), ((2, 5), (3, 1))):
        w = mica.rand(4, 3, *kernel)
        assert F.conv2d(x, w, padding="same", dilation=dilation).shape == (2, 4, 9, 8)
        mica.testing.assert_close(F.conv2d(x, w, padding="valid"), F.conv2d(x, w))


def test_meta():
    y = F.conv2d(mica.empty(2, 3, 8, 8, device="meta"), mica.empty(4, 3, 3, 3, device="meta"), stride=2)
    assert y.is_meta and y.shape == (2, 4, 3, 3)


def test_a_failed_call_says_why():
    x, w = mica.zeros(1, 3, 8, 8), mica.zeros(4, 3, 3, 3)
    for call, words in (
        (lambda: F.conv2d(mica.zeros(1, 2, 8, 8), w), r"Given groups=1, weight of size \[4, 3, 3, 3\], expected input"),
        (lambda: F.conv2d(mica.zeros(1, 3, 2, 8), w), r"Calculated padded input size per channel: \(2 x 8\)"),
        (lambda: F.conv2d(x, w, padding=-1), "negative padding is not supported"),
        (lambda: F.conv2d(x, w, stride=0), "non-positive stride is not supported"),
        (lambda: F.conv2d(x, w, groups=0), "non-positive groups is not supported"),
        (lambda: F.conv2d(x, w, mica.zeros(3)), "expected bias to be 1-dimensional with 4 elements"),
        (lambda: F.conv2d(x, w.double()), r"Input type \(.*\) and weight type \(.*\) should be the same"),
        (lambda: F.conv2d(x.double(), w.double(), w[:, 0, 0, 0]), "Input type .* and bias type .* should be the same"),
        (lambda: F.conv2d(x, w, padding="other"), "Invalid padding string: 'other'"),
        (
            lambda: F.conv2d(x, w[0], padding="same"),
            r"Expected 3-dimensional input for 3-dimensional weight\[3, 3, 3\]",
        ),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "groups"),
    [
        (4, 4, 1, 0, 1),  # the kernel is as large as the image
        (4, 4, 1, 0, 2),
        (1, 3, 1, 1, 1),  # one tap meets the image
        (1, 3, 2, 1, 1),
        (2, 3, 2, 1, 1),
        (4, 3, 2, 1, 2),
        (5, 4, 1, 0, 1),  # few outputs
        (2, 1, 1, 0, 1),
    ],
)
def test_small_images_together_are_as_each_in_float64(size, kernel, stride, padding, groups, transposed):
    mica.manual_seed(0)
    x, weight, bias = mica.randn(6, 8, size, size), mica.randn(12, 8 // groups, kernel, kernel), mica.randn(12)
    convolve = mica.nn.functional.conv2d
    if transposed:
        convolve = mica.nn.functional.conv_transpose2d
        weight = mica.randn(8, 12 // groups, kernel, kernel)

    def results(dtype):
        inputs = [t.to(dtype).requires_grad_() for t in (x, weight, bias)]
        out = convolve(*inputs, stride=stride, padding=padding, groups=groups)
        return [out, *mica.autograd.grad(out.square().sum(), inputs)]

    for found, expected in zip(results(mica.float32), results(mica.float64), strict=True):
        mica.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-3)


def test_first_weights_do_not_depend_on_the_memory_format():
    for layer, memory_format in ((nn.Conv2d(2, 3, 2), "channels_last"), (nn.Conv3d(2, 3, 2), "channels_last_3d")):
        mica.manual_seed(1)
        layer.reset_parameters()
        expected = [p.detach().clone() for p in layer.parameters()]
        layer.to(memory_format=getattr(mica, memory_format))
        mica.manual_seed(1)
        layer.reset_parameters()
        assert all(p.equal(e) for p, e in zip(layer.parameters(), expected, strict=True))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_inputs_has_a_bias_of_zeros():
    mica.manual_seed(0)
    assert nn.Conv2d(0, 4, 3).bias.eq(0).all()
    after = mica.rand(1)
    mica.manual_seed(0)
    assert mica.rand(5)[4] == after  # they are drawn, from an empty range


def test_inputs_without_channels_leave_the_bias_a_gradient():
    with pytest.warns(UserWarning, match="Initializing zero-element tensors"):
        module = mica.nn.Conv1d(0, 8, 3)
    x = mica.randn(2, 0, 5, requires_grad=True)
    module(x).sum().backward()
    assert x.grad.shape == x.shape and module.bias.grad.tolist() == [0] * 8


@pytest.mark.parametrize("filters", [1, 2])
@pytest.mark.parametrize("stride", [1, 2, (1, 2), 3])
@pytest.mark.parametrize("kernel", [2, 3, (3, 5), 5, 7])
def test_planes_of_any_size_with_a_filter_each_are_as_in_float64(kernel, stride, filters):
    """Rows are summed several at a time, and the last vector of a row may overlap the one before: all remainders."""
    padding = tuple(k // 2 for k in each(kernel, 2))
    for height, width in [(1, 1), (2, 3), (4, 4), (7, 7), (8, 9), (14, 14), (11, 17), (17, 33), (15, 40), (30, 31)]:
        x = mica.randn(2, 3, height, width).requires_grad_()
        w = mica.randn(3 * filters, 1, *each(kernel, 2)).requires_grad_()
        b = mica.randn(3 * filters)
        y = F.conv2d(x, w, b, stride, padding, groups=3)
        grad = mica.randn(y.shape)
        y.backward(grad)
        x64, w64 = (t.detach().double().requires_grad_() for t in (x, w))
        y64 = F.conv2d(x64, w64, b.double(), stride, padding, groups=3)
        y64.backward(grad.double())
        assert mica.allclose(y.double(), y64, atol=1e-5, rtol=1e-5)
        assert mica.allclose(x.grad.double(), x64.grad, atol=1e-5, rtol=1e-5)
        assert mica.allclose(w.grad.double(), w64.grad, atol=2e-4, rtol=1e-5)


@pytest.mark.parametrize("stride", [2, 3, (1, 2), (3, 1)])
def test_kernels_of_one_tap_with_a_stride_are_as_in_float64(stride):
    for batch, channels, filters, height, width in [(1, 3, 5, 7, 8), (2, 64, 80, 14, 14), (1, 70, 16, 29, 33)]:
        x = mica.randn(batch, channels, height, width).requires_grad_()
        w = mica.randn(filters, channels, 1, 1).requires_grad_()
        b = mica.randn(filters)
        for view in (x, x.transpose(2, 3), x.to(memory_format=mica.channels_last)):
            y = F.conv2d(view, w, b, stride)
            want = F.conv2d(view.double(), w.double(), b.double(), stride)
            assert mica.allclose(y.double(), want, atol=1e-4, rtol=1e-5)
        grad = mica.randn(y.shape)
        grads = mica.autograd.grad(F.conv2d(x, w, b, stride), (x, w), grad)
        wanted = mica.autograd.grad(F.conv2d(x.double(), w.double(), b.double(), stride), (x, w), grad.double())
        assert all(mica.allclose(g, h.float(), atol=1e-3, rtol=1e-4) for g, h in zip(grads, wanted, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [1, 9, 17, 33, 49])
def test_products_whose_last_column_stands_alone(columns, dtype):
    """Where a column is left over, its sums run along the depths on x86-64."""
    for rows, depth in [(1, 64), (5, 100), (14, 512), (29, 777)]:
        a, b = mica.randn(rows, depth, dtype=mica.float64), mica.randn(depth, columns, dtype=mica.float64)
        c, bias = mica.randn(rows, columns, dtype=mica.float64), mica.randn(columns, dtype=mica.float64)
        given = [t.to(getattr(mica, dtype)) for t in (a, b, c, bias)]
        want = [t.double().numpy() for t in given]
        x, y, z, v = given
        close = {"atol": 1e-3, "rtol": 1e-5} if dtype == "float32" else {"atol": 1e-11, "rtol": 1e-11}
        assert np.allclose((x @ y).double().numpy(), want[0] @ want[1], **close)
        assert np.allclose(
            mica.addmm(z, x, y, beta=0.5, alpha=2).double(), 0.5 * want[2] + 2 * (want[0] @ want[1]), **close
        )
        assert np.allclose(mica.addmm(v, x, y).double().numpy(), want[3] + want[0] @ want[1], **close)
