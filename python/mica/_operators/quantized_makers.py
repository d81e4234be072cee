"""Quantized tensors without values, and parameters of quantization that are searched for."""

from mica import _C
from mica._functions.wrapping import asks_as_called

SCHEMAS = """\
_empty_affine_quantized(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, float scale=1, int zero_point=0, MemoryFormat? memory_format=None) -> Tensor
_empty_per_channel_affine_quantized(SymInt[] size, *, Tensor scales, Tensor zero_points, int axis, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor
_choose_qparams_per_tensor(Tensor self, bool reduce_range=False) -> (float, int)
_saturate_weight_to_fp16(Tensor weight) -> Tensor
choose_qparams_optimized(Tensor input, int numel, int n_bins, float ratio, int bit_width) -> (Tensor, Tensor)
"""

_INTEGERS = {_C.quint8: _C.uint8, _C.qint8: _C.int8, _C.qint32: _C.int32}
_PACKED = {_C.quint4x2: 2, _C.quint2x4: 4}  # how many in a byte
_GREATEST_HALF = 65504.0


def _shape(size):
    return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)


def _check(dtype, layout):
    if dtype not in _INTEGERS and dtype not in _PACKED:
        raise RuntimeError("Creation of quantized tensor requires quantized dtype like torch.quint8")
    if layout not in (None, _C.strided):
        raise RuntimeError(f"quantized tensors are strided, not {layout}")


def _integers(shape, dtype, device, memory_format):
    """Integers that have no value yet: bytes, where several of them share one."""
    if dtype in _PACKED:
        return _C.empty(-(-_C.Size(shape).numel() // _PACKED[dtype]), dtype=_C.uint8, device=device)
    return _C.empty(shape, dtype=_INTEGERS[dtype], device=device, memory_format=memory_format or _C.contiguous_format)


def _empty_affine_quantized(
    *size, dtype=None, layout=None, device=None, pin_memory=None, scale=1, zero_point=0, memory_format=None, **given
):
    """A tensor that is quantized per tensor, without values."""
    shape = _shape((given.pop("size"),) if "size" in given else size)
    _check(dtype, layout)
    integers = _integers(shape, dtype, device or "cpu", memory_format)
    if dtype in _PACKED:
        parameters = (_C.tensor(float(scale), dtype=_C.float64), _C.tensor(zero_point))
        return _C._make_packed_quantized_tensor(integers, shape, *parameters, -1, dtype)
    return _C._make_per_tensor_quantized_tensor(integers, float(scale), zero_point)


def _empty_per_channel_affine_quantized(
    *size, scales, zero_points, axis, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None, **given
):
    """A tensor that is quantized per channel, without values."""
    shape = _shape((given.pop("size"),) if "size" in given else size)
    _check(dtype, layout)
    integers = _integers(shape, dtype, device or scales.device, memory_format)
    if dtype in _PACKED:
        return _C._make_packed_quantized_tensor(integers, shape, scales, zero_points, axis, dtype)
    return _C._make_per_channel_quantized_tensor(integers, scales, zero_points, axis)


@asks_as_called
def _choose_qparams_per_tensor(input, reduce_range=False):
    """The scale and the zero point of quantize_per_tensor_dynamic, as numbers."""
    quantized = _C.quantize_per_tensor_dynamic(input, _C.quint8, reduce_range)
    return quantized.q_scale(), quantized.q_zero_point()


@asks_as_called
def _saturate_weight_to_fp16(weight):
    """The weight with what float16 cannot hold replaced by the greatest number that it can."""
    return weight.float().contiguous().clamp(-_GREATEST_HALF, _GREATEST_HALF)


def _loss(input, least, greatest, levels):
    """How far the numbers are from those of `levels` steps between the bounds: the length of the difference."""
    scale = (greatest - least) / levels if float(greatest) != float(least) else _C.ones_like(least)
    numbers = ((input - least) * scale.reciprocal()).clamp(0, levels).round() * scale + least
    return float((input - numbers).square().sum())


@asks_as_called
def choose_qparams_optimized(input, numel, n_bins, ratio, bit_width):
    """The bounds between which the numbers lose least when they are rounded to `bit_width` bits: the greatest and the least.

    Both ends move inwards by one of `n_bins` steps at a time, the one that costs less first, until 1 - ratio of the range is left.
    """
    if numel < 0 or numel > input.numel():
        raise RuntimeError("numel is out of the bound of input tensor")
    if numel == 0:
        raise ValueError("input tensor is empty and has no data")
    input = input.detach().flatten()[:numel].float()
    levels = 2**bit_width - 1
    best = low, high = input.min(), input.max()
    step = (high - low) / n_bins
    room = float(int(n_bins * (1.0 - ratio)) * step)
    least_loss = loss = _loss(input, low, high, levels)
    while float(low) + room < float(high):
        from_below, from_above = _loss(input, low + step, high, levels), _loss(input, low, high - step, levels)
        if loss < min(from_below, from_above, least_loss):
            least_loss, best = loss, (low, high)
        low, high, loss = (low + step, high, from_below) if from_below < from_above else (low, high - step, from_above)
    return best[1], best[0]
