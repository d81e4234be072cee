"""Products with weights of four bits in torch's other form: two to a byte, packed together with their scales and bias."""

import mica
from mica import _C
from mica.functional import _overridable
from mica.nn import functional as F

__all__ = ["_dyn_quant_matmul_4bit", "_dyn_quant_pack_4bit_weight"]

GROUP = 32  # elements that share a scale in the packed form, so that one kernel serves every block
ROWS = 16  # the kernel's multiple of rows: missing rows have a scale of zero


def _check_block(name, block_size, in_features):
    if block_size < 1 or in_features % block_size:
        raise RuntimeError(f"{name}: block_size {block_size} does not divide in_features {in_features}")
    if block_size % GROUP:
        raise RuntimeError(f"{name}: block_size must be a multiple of {GROUP}, got {block_size}")


def _all_rows(out_features):
    return -(-out_features // ROWS) * ROWS


def _bytes(tensor):
    return tensor.contiguous().reshape(-1).view(_C.uint8)


def _is_fake(tensor):
    from mica._subclasses.fake_tensor import is_fake

    return is_fake(tensor)


@_overridable
def _dyn_quant_pack_4bit_weight(weights, scales_zeros, bias, block_size, in_features, out_features):
    """Weights of four bits, two to a byte with the lower half first, with a scale for each block of a row."""
    name = "_dyn_quant_pack_4bit_weight"
    _check_block(name, block_size, in_features)
    if weights.dtype != _C.uint8 or weights.numel() != out_features * (in_features // 2):
        raise RuntimeError(
            f"{name}: expected weights of torch.uint8 and shape {(out_features, in_features // 2)}, in rows or in blocks, "
            f"got {weights.dtype} and {tuple(weights.shape)}"
        )
    weights = weights.reshape(out_features, in_features // 2)
    blocks = in_features // block_size
    if scales_zeros.numel() != out_features * blocks or not scales_zeros.is_floating_point():
        raise RuntimeError(f"{name}: expected {out_features} x {blocks} scales, got {tuple(scales_zeros.shape)}")
    if bias is not None and tuple(bias.shape) != (out_features,):
        raise RuntimeError(f"{name}: expected a bias of shape {(out_features,)}, got {tuple(bias.shape)}")
    if _is_fake(weights):
        rows = _all_rows(out_features)
        pairs = in_features // GROUP * rows * 8
        return weights.new_empty(pairs + (0 if bias is None else out_features * 4) + rows * in_features // 2)
    integers = _C.stack([weights & 15, weights >> 4], -1).reshape(out_features, in_features).to(_C.int32)
    lacking = _all_rows(out_features) - out_features
    packed = _C._convert_weight_to_int4pack_for_cpu(F.pad(integers, (0, 0, 0, lacking)), 1)
    scales = scales_zeros.float().reshape(out_features, blocks).repeat_interleave(block_size // GROUP, 1)
    scales = F.pad(scales, (0, 0, 0, lacking))
    pairs = _C.stack([scales, _C.zeros_like(scales)], -1).transpose(0, 1).contiguous()
    parts = [_bytes(pairs), *([] if bias is None else [_bytes(bias.float())]), _bytes(packed)]
    return _C.cat(parts)


@_overridable
def _dyn_quant_matmul_4bit(inp, packed_weights, block_size, in_features, out_features):
    """inp @ weight^T + bias with a packed weight. Only the weights are rounded; torch rounds the input to 8 bits, too."""
    name = "_dyn_quant_matmul_4bit"
    _check_block(name, block_size, in_features)
    if inp.dim() < 1 or inp.shape[-1] != in_features or not inp.is_floating_point():
        raise RuntimeError(f"{name}: expected numbers of shape (..., {in_features}), got {tuple(inp.shape)}")
    rows, groups = _all_rows(out_features), in_features // GROUP
    head, halves = groups * rows * 2 * 4, rows * in_features // 2
    bias_bytes = packed_weights.numel() - head - halves if packed_weights.dtype == _C.uint8 else -1
    if packed_weights.dim() != 1 or bias_bytes not in (0, out_features * 4):
        raise RuntimeError(f"{name}: the weight was not packed for {in_features} and {out_features} features")
    if _is_fake(inp):
        return inp.new_empty((*inp.shape[:-1], out_features))
    pairs = packed_weights[:head].view(_C.float32).reshape(groups, rows, 2)
    weight = packed_weights[head + bias_bytes :].reshape(rows, in_features // 2)
    flat = inp.reshape(-1, in_features).float()
    result = mica._weight_int4pack_mm_for_cpu(flat, weight, GROUP, pairs)[:, :out_features]
    if bias_bytes:
        result = result + packed_weights[head : head + bias_bytes].view(_C.float32)
    return result.to(inp.dtype).reshape(*inp.shape[:-1], out_features)
