"""Tables of embeddings whose rows have 8, 4 or 2 bits an element, followed by the row's scale and smallest value.

A row of 8 bits ends with two float32 numbers, one of fewer bits with two float16 numbers, as FBGEMM has them. An element
is scale * integer + smallest. Of several elements in a byte, the first has the lowest bits.
"""

import functools

from mica import _C
from mica.nn import functional as F

__all__ = ["EmbeddingPackedParams", "operators"]

_WORDS = {8: "byte", 4: "4bit", 2: "2bit"}


def _joined(integers, scale, least, bits):
    """Bytes of rows: the integers, several to a byte, then the two numbers."""
    if bits < 8:
        each = 8 // bits
        parts = integers.unflatten(-1, (-1, each)) << _C.arange(0, 8, bits)
        integers = parts.sum(-1)
        scale, least = scale.half(), least.half()
    return _C.cat([integers.to(_C.uint8), scale.contiguous().view(_C.uint8), least.contiguous().view(_C.uint8)], -1)


def _check_columns(weight, bits):
    if bits < 8:
        if weight.dim() != 2:
            raise RuntimeError(f"qembeddingbag_{_WORDS[bits]}_prepack expects a matrix, got {weight.dim()} dimensions")
        if weight.shape[-1] % (8 // bits):
            raise RuntimeError(
                f"qembeddingbag_{_WORDS[bits]}_prepack only works for the number of columns a multiple of {8 // bits}"
            )
    if not weight.is_floating_point():
        raise RuntimeError(f"a table of float32 or float16 is packed, not one of {weight.dtype}")


def _prepack(bits, weight, optimized_qparams=False, nbins=200, ratio=0.16, extremes=None):
    if optimized_qparams:
        raise NotImplementedError("optimized_qparams: scales are taken from the extremes of the rows")
    _check_columns(weight, bits)
    weight = weight.detach().float()
    least, most = (weight.amin(-1, True), weight.amax(-1, True)) if extremes is None else extremes.float().split(1, -1)
    top = 2**bits - 1
    if bits == 8:
        scale = (most - least) / top
        inverse = top / (most - least + 1e-8)
    else:
        least = least.half().float()
        scale = ((most - least) / top).half().float()
        scale = _C.where((scale == 0) | (1 / scale).isinf(), 1.0, scale)
        inverse = 1 / scale
    integers = ((weight - least) * inverse).round().clamp(0, top).to(_C.int64)
    return _joined(integers, scale, least, bits)


def _with_min_max(bits, weight, rowwise_min_max, *options):
    return _prepack(bits, weight, *options, extremes=rowwise_min_max)


def _unpack(bits, weight):
    tail = 8 if bits == 8 else 4
    if weight.dtype != _C.uint8 or weight.dim() < 1 or weight.shape[-1] < tail:
        raise RuntimeError(f"expected packed rows of torch.uint8, got {weight.dtype} of shape {tuple(weight.shape)}")
    integers, rest = weight[..., :-tail], weight[..., -tail:].contiguous()
    scale, least = rest.view(_C.float32 if bits == 8 else _C.float16).float().split(1, -1)
    if bits < 8:
        integers = (integers.unsqueeze(-1) >> _C.arange(0, 8, bits, dtype=_C.uint8) & 2**bits - 1).flatten(-2)
    return integers.float() * scale + least


def _bags(
    bits, weight, indices, offsets=None, scale_grad_by_freq=False, mode=0, pruned_weights=False,
    per_sample_weights=None, compressed_indices_mapping=None, include_last_offset=False,
):  # fmt: skip
    """Sums of rows. As in torch, the mode changes nothing. Only the rows that are asked for are converted to float32."""
    if indices.dim() == 1 and offsets is None:
        raise RuntimeError("embedding_bag_4bit/embedding_bag_2bit operator expects offsets to be set for 1D indices.")
    if pruned_weights and compressed_indices_mapping is not None:
        mapping = compressed_indices_mapping
        if mapping.numel() > 1 or len(mapping) == len(weight):  # a single zero says that no row was left out
            indices = mapping[indices.long()]
    kept = indices >= 0 if pruned_weights else None
    used, places = (
        indices.clamp_min(0).unique(return_inverse=True) if pruned_weights else indices.unique(return_inverse=True)
    )
    if used.numel() and not (int(used[0]) >= 0 and int(used[-1]) < len(weight)):
        wrong = int(used[-1]) if int(used[-1]) >= len(weight) else int(used[0])
        raise RuntimeError(f"Index is out of bounds: {wrong}, range 0 to {len(weight)}")
    rows = _unpack(bits, weight[used.long()])
    if kept is not None:
        weights = _C.ones(places.shape) if per_sample_weights is None else per_sample_weights
        per_sample_weights = weights * kept
    offsets = None if offsets is None else offsets.to(places.dtype)
    return F.embedding_bag(
        places,
        rows,
        offsets,
        mode="sum",
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
    )


class EmbeddingPackedParams:
    """A quantized table with a scale and a zero point for each row, packed for lookups."""

    def __init__(self, weight):
        bits = {_C.quint8: 8, _C.quint4x2: 4}.get(weight.dtype)
        if bits is None:
            raise RuntimeError("qembedding_bag_prepack currently only supports quint8 and quint4x2 weights")
        if weight.dim() != 2 or weight.q_per_channel_axis() != 0:
            raise RuntimeError("expected a matrix that is quantized by rows")
        self._weight, self.bits = weight, bits
        scale = weight.q_per_channel_scales().float().unsqueeze(-1)
        least = -scale * weight.q_per_channel_zero_points().float().unsqueeze(-1)
        integers = weight.int_repr()
        if bits == 8:
            self.rows = _joined(integers, scale, least, 8)
        else:  # two to a byte already
            if weight.shape[1] % 2:
                raise RuntimeError("qembedding_bag_prepack: rows of four bits have an even number of columns")
            integers = integers.view(len(weight), weight.shape[1] // 2)
            self.rows = _C.cat([integers, *(x.half().contiguous().view(_C.uint8) for x in (scale, least))], -1)

    def unpack(self):
        """The quantized table."""
        return self._weight


def _packed_bags(bits, weight, *args, **kwargs):
    if weight.bits != bits:
        raise RuntimeError(f"the table was packed with {weight.bits} bits, not {bits}")
    return _bags(bits, weight.rows, *args, **kwargs)


def _packed_rows(bits, weight, indices, pruned_weights=False):
    if indices.dim() != 1:
        raise RuntimeError("Expect the indices to be a 1-D tensor")
    return _packed_bags(bits, weight, indices.unsqueeze(-1), pruned_weights=pruned_weights)


def operators(put, classes):
    """Give `put` each function with its schema."""
    params = f"{classes}EmbeddingPackedParamsBase"
    options = (
        "Tensor indices, Tensor? offsets=None, bool scale_grad_by_freq=False, int mode=0, bool pruned_weights=False, "
        "Tensor? per_sample_weights=None, Tensor? compressed_indices_mapping=None, bool include_last_offset=False"
    )
    for bits, word in _WORDS.items():
        more = "" if bits == 8 else ", bool optimized_qparams=False, int nbins=200, float ratio=0.16"
        name = f"embedding_bag_{word}"
        put(functools.partial(_prepack, bits), f"{name}_prepack(Tensor weight{more}) -> Tensor")
        put(
            functools.partial(_with_min_max, bits),
            f"{name}_prepack_with_rowwise_min_max(Tensor weight, Tensor rowwise_min_max{more}) -> Tensor",
        )
        put(functools.partial(_unpack, bits), f"{name}_unpack(Tensor weight) -> Tensor")
        put(functools.partial(_bags, bits), f"{name}_rowwise_offsets(Tensor weight, {options}) -> Tensor")
    for bits in (8, 4):
        put(
            functools.partial(_packed_bags, bits), f"embedding_bag_{_WORDS[bits]}({params} weight, {options}) -> Tensor"
        )
        put(
            functools.partial(_packed_rows, bits),
            f"embedding_{_WORDS[bits]}({params} weight, Tensor indices, bool pruned_weights=False) -> Tensor",
        )
    put(EmbeddingPackedParams, f"embedding_bag_prepack(Tensor weight) -> {params} W_prepack")
    put(EmbeddingPackedParams.unpack, f"embedding_bag_unpack({params} W_prepack) -> Tensor W_origin")
