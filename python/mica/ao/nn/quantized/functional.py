"""Linear maps and convolutions of quantized tensors: sums of products of 8-bit integers, exact in 32 bits."""

import functools

from mica import _C
from mica.nn import functional as F
from mica.nn.functional import pad, unfold


def _signed(x):
    """The integers of a quint8 or qint8 tensor as int8, and the zero point that goes with them."""
    integers, zero = x.int_repr(), x.q_zero_point()
    if integers.dtype == _C.uint8:
        return (integers.to(_C.int16) - 128).to(_C.int8), zero - 128
    return integers, zero


def _weight_parts(weight):
    """int8 rows, and a scale and a zero point for each of them."""
    rows = weight.int_repr().flatten(1)
    if weight._is_quantized_per_channel():
        return rows, weight.q_per_channel_scales().float(), weight.q_per_channel_zero_points()
    count = rows.shape[0]
    return rows, _C.full((count,), weight.q_scale()), _C.full((count,), weight.q_zero_point(), dtype=_C.int64)


def _products(x, x_zero, rows, row_zeros):
    """(x - x_zero) @ (rows - row_zeros)^T of int8 matrices, in int64: the zero points are taken out of the sums."""
    sums = _C._int_mm(x, rows.t()).to(_C.int64)
    inner = rows.shape[1]
    row_sums = rows.to(_C.int64).sum(1)
    sums = sums - x_zero * row_sums
    if row_zeros.any():
        sums = sums - (x.to(_C.int64).sum(1, keepdim=True) - inner * x_zero) * row_zeros
    return sums


def _requantized(values, scale, zero_point, dtype):
    return values if scale is None else _C.quantize_per_tensor(values, float(scale), int(zero_point), dtype)


def linear(input, weight, bias=None, scale=None, zero_point=None):
    """input @ weight^T + bias of a quantized input and a qint8 weight; quantized again if a scale is given."""
    x, x_zero = _signed(input)
    rows, scales, zeros = _weight_parts(weight)
    sums = _products(x.reshape(-1, x.shape[-1]).contiguous(), x_zero, rows, zeros)
    values = sums.float() * (scales * input.q_scale())
    if bias is not None:
        values = values + bias
    return _requantized(values.reshape(*input.shape[:-1], -1), scale, zero_point, input.dtype)


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, scale=None, zero_point=None):
    """A convolution of a quantized image, as a product of its columns and the rows of a qint8 weight."""
    stride, padding, dilation = ((v, v) if isinstance(v, int) else tuple(v) for v in (stride, padding, dilation))
    x, x_zero = _signed(input)
    # Padding is with zeros, which the zero point stands for. Small integers are exact in float32.
    image = pad(x.float(), (padding[1], padding[1], padding[0], padding[0]), value=float(x_zero))
    rows, scales, zeros = _weight_parts(weight)
    batch, channels = image.shape[:2]
    height, width = weight.shape[2:]
    out_size = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(image.shape[2:], (height, width), stride, dilation, strict=True)
    ]
    per_group, made = weight.shape[0] // groups, []
    for g in range(groups):
        part = image[:, g * channels // groups : (g + 1) * channels // groups]
        columns = unfold(part, (height, width), dilation=dilation, stride=stride).transpose(1, 2)
        chosen = slice(g * per_group, (g + 1) * per_group)
        flat = columns.reshape(-1, columns.shape[-1]).to(_C.int8)
        sums = _products(flat, x_zero, rows[chosen].contiguous(), zeros[chosen])
        made.append((sums.float() * (scales[chosen] * input.q_scale())).reshape(batch, -1, per_group).transpose(1, 2))
    values = _C.cat(made, 1).reshape(batch, weight.shape[0], *out_size)
    if bias is not None:
        values = values + bias.reshape(-1, 1, 1)
    return _requantized(values, scale, zero_point, input.dtype)


def _only(value):
    return value if isinstance(value, int) else next(iter(value))


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, scale=None, zero_point=None):
    """A convolution of a quantized sequence: of an image of one row."""
    stride, padding, dilation = map(_only, (stride, padding, dilation))
    made = conv2d(
        input.unsqueeze(2),
        weight.unsqueeze(2),
        bias,
        (1, stride),
        (0, padding),
        (1, dilation),
        groups,
        scale,
        zero_point,
    )
    return made.squeeze(2)


def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, scale=None, zero_point=None):
    """A convolution of a quantized volume, in float64, where products of 8-bit integers are exact."""
    values = _C.conv3d(
        input.dequantize().double(), weight.dequantize().double(), None, stride, padding, dilation, groups
    ).float()
    if bias is not None:
        values = values + bias.reshape(-1, 1, 1, 1)
    return _requantized(values, scale, zero_point, input.dtype)


# ---- pooling, interpolation, activations: float32 in between, one rounding


def _quantized(name, input):
    if not input.is_quantized:
        raise ValueError(f"Input to 'quantized.{name}' must be quantized!")
    return input


def _passed_on(name):
    """The function of nn.functional, which takes quantized tensors, for them alone."""
    function = getattr(F, name)

    @functools.wraps(function)
    def checked(input, *args, **kwargs):
        return function(_quantized(name, input), *args, **kwargs)

    checked.__doc__ = f"nn.functional.{name} of a quantized tensor, in its scale."
    return checked


adaptive_avg_pool2d, adaptive_avg_pool3d, avg_pool2d, avg_pool3d, interpolate, max_pool1d, max_pool2d, hardsigmoid = map(
    _passed_on,
    (
        "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "interpolate", "max_pool1d",
        "max_pool2d", "hardsigmoid",
    ),
)  # fmt: skip


def _rounded(function, input, scale=None, zero_point=None):
    scale = input.q_scale() if scale is None else float(scale)
    zero_point = input.q_zero_point() if zero_point is None else int(zero_point)
    return _C.quantize_per_tensor(function(input.dequantize()), scale, zero_point, input.dtype)


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """interpolate."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate with mode="bilinear" and align_corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate with mode="nearest"."""
    return interpolate(input, size, scale_factor, "nearest")


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """The numbers held between two."""
    result = _rounded(lambda x: x.clamp(min_val, max_val), _quantized("hardtanh", input))
    return input.copy_(result) if inplace else result


def clamp(input, min_, max_):
    """The numbers held between two."""
    return _rounded(lambda x: x.clamp(min_, max_), _quantized("clamp", input))


def threshold(input, threshold, value):
    """The numbers above a threshold, and a value instead of the others."""
    return _rounded(lambda x: F.threshold(x, threshold, value), _quantized("threshold", input))


def leaky_relu(input, negative_slope=0.01, inplace=False, scale=None, zero_point=None):
    """leaky_relu, in a scale of its own if one is given."""
    result = _rounded(lambda x: F.leaky_relu(x, negative_slope), _quantized("leaky_relu", input), scale, zero_point)
    return input.copy_(result) if inplace and scale is None else result


def hardswish(input, scale, zero_point):
    """hardswish, in a scale of its own."""
    return _rounded(F.hardswish, _quantized("hardswish", input), scale, zero_point)


def elu(input, scale, zero_point, alpha=1.0):
    """elu, in a scale of its own."""
    return _rounded(lambda x: F.elu(x, alpha), _quantized("elu", input), scale, zero_point)


def celu(input, scale, zero_point, alpha=1.0):
    """celu, in a scale of its own."""
    return _rounded(lambda x: F.celu(x, alpha), _quantized("celu", input), scale, zero_point)
