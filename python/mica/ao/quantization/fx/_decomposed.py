"""torch.ops.quantized_decomposed: quantization as integers, scales and zero points that are arguments, not parts of a tensor.

Importing this module defines the operators. They are what programs quantized after export are made of.
"""

import math

import mica
from mica.autograd import Function
from mica.library import Library

_INTEGERS = (mica.uint8, mica.int8, mica.uint16, mica.int16, mica.int32)
_BOUNDS = {dtype: (mica.iinfo(dtype).min, mica.iinfo(dtype).max) for dtype in _INTEGERS}
_BOUNDS |= {dtype: (int(mica.finfo(dtype).min), int(mica.finfo(dtype).max)) for dtype in (mica.float8_e5m2, mica.float8_e4m3fn)}  # fmt: skip

quantized_decomposed_lib = Library("quantized_decomposed", "DEF")


def _operator(schema, key="CompositeExplicitAutograd"):
    """Defines an operator and implements it. `fake` of the result says what it returns where there are no values."""

    def define(function):
        name = quantized_decomposed_lib.define(schema)
        quantized_decomposed_lib.impl(name, function, key)
        function.fake = lambda fake: quantized_decomposed_lib.impl(name, fake, "Meta")
        return function

    return define


def _like(input, scale, zero_point, quant_min, quant_max, dtype):
    return mica.empty_like(input, dtype=dtype)


def _like_float(input, *rest, out_dtype=None):
    return mica.empty_like(input, dtype=out_dtype or mica.float32)


# ---- checks


def _check_bounds(quant_min, quant_max, dtype):
    if dtype not in _BOUNDS:
        raise ValueError(f"Unsupported dtype: {dtype}")
    least, greatest = _BOUNDS[dtype]
    if quant_min < least:
        raise AssertionError(
            f"quant_min out of bounds for dtype, quant_min_lower_bound: {least} quant_min: {quant_min}"
        )
    if quant_max > greatest:
        raise AssertionError(
            f"quant_max out of bounds for dtype, quant_max_upper_bound: {greatest} quant_max: {quant_max}"
        )


def _float32(input):
    input = input.to(mica.float32) if input.dtype in (mica.float16, mica.bfloat16) else input
    if input.dtype != mica.float32:
        raise AssertionError(f"Expecting input to have dtype torch.float32, but got dtype: {input.dtype}")
    return input


def _check_dtype(input, dtype):
    if input.dtype != dtype:
        raise AssertionError(f"Expecting input to have dtype: {dtype}, but got {input.dtype}")
    if dtype not in _BOUNDS:
        raise ValueError(f"Unsupported dtype in dequantize_per_tensor: {dtype}")


def _number(name, tensor):
    if tensor.numel() != 1:
        raise AssertionError(f"Expecting {name} tensor to be one element, but received : {tensor.numel()}")
    return tensor.item()


def _along(parameter, input, axis):
    """A parameter for each slice along `axis`, shaped so that it meets that slice."""
    if axis >= input.dim():
        raise AssertionError(f"Expecting axis to be < {input.dim()}")
    return parameter.view([-1 if d == axis % input.dim() else 1 for d in range(input.dim())])


def _rounded(input, scale, zero_point, quant_min, quant_max, dtype):
    return mica.clamp(mica.round(input * (1.0 / scale)) + zero_point, quant_min, quant_max).to(dtype)


# ---- per tensor


@_operator(
    "quantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor"
)
def quantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype):
    """Integers of `dtype` that stand for the numbers of a tensor."""
    input = _float32(input)
    _check_bounds(quant_min, quant_max, dtype)
    return _rounded(input, scale, zero_point, quant_min, quant_max, dtype)


@_operator(
    "quantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor"
)
def quantize_per_tensor_tensor(input, scale, zero_point, quant_min, quant_max, dtype):
    """The same with a scale and a zero point that are tensors of one element."""
    zero_point, scale = _number("zero_point", zero_point), _number("scale", scale)
    return quantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype)


@_operator(
    "quantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype) -> Tensor"
)
def quantize_per_tensor_tensor2(input, scale, zero_point, quant_min, quant_max, dtype):
    """The same with bounds that are tensors too."""
    return quantize_per_tensor_tensor(input, scale, zero_point, quant_min.item(), quant_max.item(), dtype)


for _each in (quantize_per_tensor, quantize_per_tensor_tensor, quantize_per_tensor_tensor2):
    _each.fake(_like)


@_operator(
    "dequantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor"
)
def dequantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype, *, out_dtype=None):
    """The numbers that quantized integers stand for. The bounds are those of the quantization, and change nothing."""
    _check_dtype(input, dtype)
    return (input.to(out_dtype or mica.float32) - zero_point) * scale


@_operator(
    "dequantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor"
)
def dequantize_per_tensor_tensor(input, scale, zero_point, quant_min, quant_max, dtype, *, out_dtype=None):
    """The same with a scale and a zero point that are tensors of one element."""
    zero_point, scale = _number("zero_point", zero_point), _number("scale", scale)
    return dequantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype, out_dtype=out_dtype)


@_operator(
    "dequantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor"
)
def dequantize_per_tensor_tensor2(input, scale, zero_point, quant_min, quant_max, dtype, *, out_dtype=None):
    """The same with bounds that are tensors too."""
    return dequantize_per_tensor_tensor(input, scale, zero_point, 0, 0, dtype, out_dtype=out_dtype)


for _each in (dequantize_per_tensor, dequantize_per_tensor_tensor, dequantize_per_tensor_tensor2):
    _each.fake(_like_float)


# ---- the parameters that the numbers of a tensor ask for


def _least_and_greatest(input, quant_min, quant_max, dtype):
    if input.dtype not in (mica.float32, mica.float16, mica.bfloat16):
        raise AssertionError(f"Expecting input to have dtype torch.float32/16/b16, but got dtype: {input.dtype}")
    if dtype not in _BOUNDS:
        raise AssertionError(f"Expecting target dtype to be one of {_BOUNDS.keys()}, but got: {dtype}")
    if not quant_min <= 0 <= quant_max:
        raise AssertionError("Used-specified quantization range must include 0.")
    if quant_min >= quant_max:
        raise AssertionError("qmin must be strictly less than qmax for user-specified quantization range.")
    least, greatest = mica.aminmax(input)
    return least.clamp(max=0), greatest.clamp(min=0)


@_operator(
    "choose_qparams.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)"
)
def choose_qparams_tensor(input, quant_min, quant_max, eps, dtype):
    """The scale and the zero point for which the least and the greatest number fit."""
    least, greatest = _least_and_greatest(input, quant_min, quant_max, dtype)
    scale = ((greatest - least) / float(quant_max - quant_min)).clamp(min=float(eps))
    zero_point = (quant_min - mica.round(least / scale).to(mica.int32)).clamp(quant_min, quant_max)
    return scale.reshape(1).to(mica.float64), zero_point.reshape(1).to(mica.int64)


@_operator(
    "choose_qparams_symmetric.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)"
)
def choose_qparams_symmetric_tensor(input, quant_min, quant_max, eps, dtype):
    """The scale and the zero point of a tensor, with zero in the middle of the range."""
    least, greatest = _least_and_greatest(input, quant_min, quant_max, dtype)
    scale = (mica.max(-least, greatest) / (float(quant_max - quant_min) / 2)).clamp(min=float(eps))
    zero_point = mica.full((1,), 128 if dtype == mica.uint8 else 0, dtype=mica.int64, device=input.device)
    return scale.reshape(1).to(mica.float64), zero_point


@_operator("choose_qparams_per_token(Tensor input, ScalarType dtype) -> (Tensor, Tensor)")
def choose_qparams_per_token(input, dtype):
    """A scale for each vector along the last dimension, with zero in the middle."""
    if dtype != mica.int8:
        raise Exception(f"unsupported dtype in choose_qparams_per_token: {dtype}")
    scales = input.abs().amax(dim=-1, keepdim=True)
    scales = (scales.float() if scales.dtype == mica.float16 else scales).clamp(min=1e-5).div(127)
    return scales, mica.zeros_like(scales)


@_operator(
    "_choose_qparams_per_token_asymmetric_impl(Tensor input, ScalarType dtype) -> (Tensor, Tensor)",
    "CompositeImplicitAutograd",
)
def _choose_qparams_per_token_asymmetric_impl(input, dtype):
    low, high = -128, 127
    least = input.amin(dim=-1, keepdim=True).clamp(max=0)
    greatest = input.amax(dim=-1, keepdim=True).clamp(min=0)
    scale = ((greatest - least) / float(high - low)).clamp(min=mica.finfo(mica.float32).eps)
    below, above = least / scale, greatest / scale
    zero_point = mica.where((low + below) + (high + above) > 0, low - below, high - above)
    return scale.to(mica.float64), zero_point.clamp(low, high).round().to(mica.int64)


@_operator("choose_qparams_per_token_asymmetric(Tensor input, ScalarType dtype) -> (Tensor, Tensor)")
def choose_qparams_per_token_asymmetric(input, dtype):
    """A scale and a zero point for each vector along the last dimension."""
    return _choose_qparams_per_token_asymmetric_impl(input, dtype)


# ---- per channel, per vector, per group


@_operator(
    "quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max, ScalarType dtype) -> Tensor"
)
def quantize_per_channel(input, scales, zero_points, axis, quant_min, quant_max, dtype):
    """quantize_per_tensor with a scale and a zero point for each slice along `axis`."""
    input = _float32(input)
    scales, zero_points = _along(scales, input, axis), _along(zero_points, input, axis)
    _check_bounds(quant_min, quant_max, dtype)
    return _rounded(input, scales, zero_points, quant_min, quant_max, dtype)


@_operator(
    "dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor"
)
def dequantize_per_channel(input, scales, zero_points, axis, quant_min, quant_max, dtype, *, out_dtype=None):
    """The way back."""
    if input.dtype != dtype:
        raise AssertionError(f"Expecting input to have dtype: {dtype}, but got dtype: {input.dtype}")
    _check_bounds(quant_min, quant_max, dtype)
    scales = _along(scales, input, axis)
    moved = input if zero_points is None else input - _along(zero_points, input, axis)
    return (moved * scales).to(out_dtype or mica.float32)


def _per_token_quant_qparam_dim_check(input, scales, zero_points):
    count = math.prod(input.shape[:-1])
    if count != scales.numel():
        raise AssertionError(f"num_tokens: {count} scales: {scales.size()}")
    if count != zero_points.numel():
        raise AssertionError(f"num_tokens: {count} zero_points: {zero_points.size()}")


def _rounded_last(input, scales, zero_points, quant_min, quant_max, dtype):
    """The zero point is added before rounding here, as torch has it."""
    return input.mul(1.0 / scales).add(zero_points).round().clamp(quant_min, quant_max).to(dtype)


@_operator(
    "quantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype) -> Tensor"
)
def quantize_per_token(input, scales, zero_points, quant_min, quant_max, dtype):
    """Integers with a scale and a zero point for each vector along the last dimension."""
    _check_bounds(quant_min, quant_max, dtype)
    _per_token_quant_qparam_dim_check(input, scales, zero_points)
    return _rounded_last(input, scales, zero_points, quant_min, quant_max, dtype)


@_operator(
    "dequantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, ScalarType output_dtype) -> Tensor"
)
def dequantize_per_token(input, scales, zero_points, quant_min, quant_max, dtype, output_dtype=mica.float32):
    """The way back."""
    return ((input - zero_points) * scales).to(output_dtype)


def _group_of(name, input, scales, size):
    if size <= 1:
        raise AssertionError(f"group_size must be > 1, but got {size}")
    if size > input.shape[-1] and scales.shape[-1] == 1:
        size = input.shape[-1]
    if input.shape[-1] % size != 0:
        raise AssertionError(f"{name}.shape[-1] must be divisible by group_size")
    if input.dim() != 2:
        raise AssertionError(f"{name} must be 2-dimensional")
    return input.reshape(-1, size)


@_operator(
    "quantize_per_channel_group(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, int group_size) -> Tensor"
)
def quantize_per_channel_group(input, scales, zero_points, quant_min, quant_max, dtype, group_size=128):
    """Integers with a scale and a zero point for `group_size` numbers that follow each other in a row."""
    groups = _group_of("input", input, scales, group_size)
    if groups.isnan().any():
        raise AssertionError("to_quant must not contain NaNs")
    scales, zero_points = scales.reshape(-1, 1), zero_points.reshape(-1, 1)
    return _rounded_last(groups, scales, zero_points, quant_min, quant_max, dtype).reshape_as(input)


@quantize_per_channel_group.fake
def _quantize_per_channel_group_fake(input, scales, zero_points, quant_min, quant_max, dtype, group_size=128):
    _group_of("input", input, scales, group_size)
    return mica.empty_like(input, dtype=dtype)


@_operator(
    "dequantize_per_channel_group(Tensor input, Tensor scales, Tensor? zero_points, int quant_min, int quant_max, ScalarType dtype, int group_size, ScalarType output_dtype) -> Tensor"
)
def dequantize_per_channel_group(
    w_int8, scales, zero_points, quant_min, quant_max, dtype, group_size=128, output_dtype=mica.float32
):
    """The way back."""
    groups = _group_of("w_int8", w_int8, scales, group_size)
    moved = groups if zero_points is None else groups.sub(zero_points.reshape(-1, 1))
    return moved.mul(scales.reshape(-1, 1)).reshape_as(w_int8).to(output_dtype)


class FakeQuantPerChannel(Function):
    """Quantized and back; gradients pass where a number lies within the bounds."""

    @staticmethod
    def forward(ctx, input, scales, zero_points, axis, quant_min, quant_max):
        if input.dtype != mica.float32:
            raise AssertionError(f"Expecting input to have dtype torch.float32, but got dtype: {input.dtype}")
        scales, zero_points = _along(scales.float(), input, axis), _along(zero_points.int(), input, axis)
        moved = mica.round(input * (1.0 / scales)) + zero_points
        ctx.save_for_backward((moved >= quant_min) & (moved <= quant_max))
        return (moved.clamp(quant_min, quant_max) - zero_points) * scales

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None, None, None, None, None


@_operator(
    "fake_quant_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max) -> Tensor",
    "CompositeImplicitAutograd",
)
def fake_quant_per_channel(input, scales, zero_points, axis, quant_min, quant_max):
    """What quantizing and dequantizing makes of the numbers of each slice along `axis`."""
    return FakeQuantPerChannel.apply(input, scales, zero_points, axis, quant_min, quant_max)


@_operator("convert_element_type.no_fuse(Tensor input, ScalarType dtype) -> Tensor")
def convert_element_type(input, dtype):
    """The tensor in another dtype, as a step of its own."""
    return input.to(dtype)
