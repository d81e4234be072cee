"""Operators of torch's on sparse and quantized tensors that few programs name (mica._operators.rare)."""

import mica
from mica import _C

_convert_weight_to_int4pack_for_cpu = _C._convert_weight_to_int4pack_for_cpu
_weight_int4pack_mm_for_cpu = _C._weight_int4pack_mm_for_cpu


def _into(result, out):
    """`result`, written to `out` where one is given."""
    if out is None:
        return result
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


def _copy_of(part):
    def copy(input, *, out=None):
        return _into(getattr(input, part)().clone(), out)

    copy.__name__ = f"{part}_copy"
    copy.__doc__ = f"A copy of {part}()."
    return copy


indices_copy, values_copy, _indices_copy, _values_copy = map(_copy_of, ("indices", "values", "_indices", "_values"))
crow_indices_copy, col_indices_copy, ccol_indices_copy, row_indices_copy = map(
    _copy_of, ("crow_indices", "col_indices", "ccol_indices", "row_indices")
)


def spmm(input, mat2, *, out=None):
    """mm"""
    return _into(_C.mm(input, mat2), out)


def hsmm(input, mat2, *, out=None):
    """hspmm"""
    return _into(_C.hspmm(input, mat2), out)


def saddmm(input, mat1, mat2, *, beta=1, alpha=1, out=None):
    """sspaddmm"""
    return _into(_C.sspaddmm(input, mat1, mat2, beta=beta, alpha=alpha), out)


def empty_quantized(size, qtensor, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    """Integers without a value, quantized as another tensor is."""
    integers = _C.empty(size, dtype=qtensor.int_repr().dtype, device=device or qtensor.device)
    if qtensor._is_quantized_per_channel():
        return _C._make_per_channel_quantized_tensor(
            integers, qtensor.q_per_channel_scales(), qtensor.q_per_channel_zero_points(), qtensor.q_per_channel_axis()
        )
    return _C._make_per_tensor_quantized_tensor(integers, qtensor.q_scale(), qtensor.q_zero_point())


def _quantized_pool(name):
    def pool(input, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        if (
            name != "max_pool1d"
            and min(dilation if isinstance(dilation, (tuple, list)) else (dilation,), default=1) < 1
        ):
            raise RuntimeError(f"Expected dilation >= 1, but got {dilation}")
        pooled = getattr(mica.nn.functional, name)(
            input.int_repr().float(), kernel_size, stride or None, padding, dilation, ceil_mode
        )
        return _C._make_per_tensor_quantized_tensor(
            pooled.to(input.int_repr().dtype), input.q_scale(), input.q_zero_point()
        )

    pool.__name__ = f"quantized_{name}"
    pool.__doc__ = f"{name} of a quantized tensor."
    return pool


quantized_max_pool1d, quantized_max_pool2d, quantized_max_pool3d = map(
    _quantized_pool, ("max_pool1d", "max_pool2d", "max_pool3d")
)


def quantized_batch_norm(input, weight, bias, mean, var, eps, output_scale, output_zero_point):
    """Batch normalization of a quantized tensor."""
    normal = mica.nn.functional.batch_norm(input.dequantize(), mean, var, weight, bias, eps=eps)
    return _C.quantize_per_tensor(normal, output_scale, output_zero_point, input.dtype)
