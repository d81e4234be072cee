"""Attention whose scores a function of the caller's changes, and whose mask is a function too."""

from typing import NamedTuple, TypedDict

import mica
from mica.nn import functional as F
from mica.nn.attention.block_mask import (  # noqa: F401
    _DEFAULT_SPARSE_BLOCK_SIZE,
    BlockMask,
    _takes,
    and_masks,
    create_block_mask,
    create_mask,
    noop_mask,
    or_masks,
)
from mica.nn.attention.each_score import evaluate

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask", "create_mask",
    "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip

_score_mod_signature = _mask_mod_signature = object
_LARGE_SPARSE_BLOCK_SIZE = 1 << 30


class FlexKernelOptions(TypedDict, total=False):
    """Options of torch's kernels: taken, and of no effect."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    BACKEND: str


class AuxRequest(NamedTuple):
    """What to return beside the result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The logarithm of the sum of the exponentials of each row's scores, and their maximum."""

    lse: mica.Tensor | None = None
    max_scores: mica.Tensor | None = None


for _class in (BlockMask, create_block_mask, create_mask, and_masks, or_masks, noop_mask):
    _class.__module__ = __name__  # where torch has them


def _identity(score, batch, head, token_q, token_kv):
    """Leaves a score as it is."""
    return score


def _check(query, key, value, enable_gqa):
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if query.size(-1) != key.size(-1):
        raise ValueError(
            "Expect query and key/value to have the same embedding dimension "
            f"but got E={query.size(-1)} and E={key.size(-1)}."
        )
    devices = {t.device for t in (query, key, value)}
    if len(devices) > 1:
        raise ValueError(f"Expected query, key and value on one device, but got {sorted(map(str, devices))}")
    if not enable_gqa and query.size(1) != key.size(1):
        raise ValueError(
            "Expect query and key/value to have the same number of heads "
            f"but got Hq={query.size(1)} and Hkv={key.size(1)}. Try setting enable_gqa=True for GQA."
        )
    if enable_gqa and query.size(1) % key.size(1):
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA "
            f"but got Hq={query.size(1)} and Hkv={key.size(1)}."
        )
    if query.size(0) != key.size(0) and key.size(0) != 1:
        raise ValueError(f"Expect Bq == Bkv or Bkv == 1, but got Bq={query.size(0)} and Bkv={key.size(0)}.")


_BACKENDS = ("AUTO", "TRITON", "FLASH", "TRITON_DECODE")


def _check_options(options):
    if "BACKEND" not in options:
        return
    if options.get("FORCE_USE_FLEX_ATTENTION"):
        raise RuntimeError(
            "BACKEND cannot be combined with legacy FORCE_USE_FLEX_ATTENTION. BACKEND supersedes the legacy knob; "
            "please drop FORCE_USE_FLEX_ATTENTION and only specify the desired BACKEND."
        )
    if options["BACKEND"] not in _BACKENDS:
        raise ValueError(f"Invalid BACKEND value {options['BACKEND']!r}. Must be one of {_BACKENDS}")


def _create_empty_block_mask(query, key):
    """The mask of one block that lets everything through, whatever the lengths are."""
    return BlockMask.from_kv_blocks(
        mica.ones(1, 1, 1, dtype=mica.int32, device=query.device),
        mica.zeros(1, 1, 1, 1, dtype=mica.int32, device=query.device),
        BLOCK_SIZE=_LARGE_SPARSE_BLOCK_SIZE,
        seq_lengths=(1, 1),
    )


def _is_empty(block_mask):
    return set(block_mask.BLOCK_SIZE) == {_LARGE_SPARSE_BLOCK_SIZE} and block_mask.mask_mod is noop_mask


def _check_mask(block_mask, query, key):
    lengths = (query.size(-2), key.size(-2))
    if block_mask.seq_lengths != lengths:
        larger = block_mask.seq_lengths[0] >= lengths[0] and block_mask.seq_lengths[1] >= lengths[1]
        advice = (
            "larger length than you're using it for, you can either 1. create a new block mask with the correct length, "
            "or 2. 'adjust' the existing block mask to the correct length by calling block_mask._adjust(q_len, kv_len)."
            if larger
            else "smaller length than you're using it for, you likely need to create a new block mask."
        )
        raise ValueError(
            f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={lengths[0]} and "
            f"kv_len={lengths[1]}. As the block mask was created for a {advice}"
        )


def flex_attention(
    query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False,
    kernel_options=None, *, return_aux=None,
):  # fmt: skip
    """softmax(score_mod(query @ key.T * scale)) @ value over the scores that the mask lets through.

    Without a score_mod this is scaled_dot_product_attention with a mask. With one, all scores are computed: the
    memory is that of the matrix of scores.
    """
    _check(query, key, value, enable_gqa)
    _check_options(kernel_options or {})
    if block_mask is not None and _is_empty(block_mask):
        block_mask = None
    if block_mask is not None:
        _check_mask(block_mask, query, key)
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux. return_lse is deprecated; use return_aux")
    if return_aux is not None and return_aux.max_scores:
        raise NotImplementedError("Returning max scores is not supported on CPU/MPS.")
    kind = query.device.type
    if mica.is_autocast_enabled(kind):  # as for one operator: the inputs are cast, and nothing that it is made of
        from mica.amp.autocast_mode import _cast

        query, key, value = _cast((query, key, value), kind, mica.get_autocast_dtype(kind))
        with mica.autocast(kind, enabled=False):
            return flex_attention(
                query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options,
                return_aux=return_aux,
            )  # fmt: skip
    lse_wanted = return_lse or (return_aux is not None and return_aux.lse)
    batch, heads, queries, keys = *query.shape[:3], key.size(2)
    groups = heads // max(key.size(1), 1)
    mask = None if block_mask is None else block_mask.element_mask(batch, heads, query.device)
    if score_mod is None and not lse_wanted:
        if key.size(0) != batch:
            key, value = (t.expand(batch, -1, -1, -1) for t in (key, value))
        key, value = key.to(query.dtype), value.to(query.dtype)
        out = F.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=groups > 1)
        return (out, AuxOutput()) if return_aux is not None else out
    if groups > 1:
        key, value = (t.repeat_interleave(groups, 1) for t in (key, value))
    wide = mica.float64 if query.dtype == mica.float64 else mica.float32
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * (query.size(-1) ** -0.5 if scale is None else scale)
    if score_mod is not None:
        scores = evaluate(score_mod, (batch, heads, queries, keys), query.device, scores).to(wide)
    if mask is not None:
        scores = scores.masked_fill(~mask, -mica.inf)
    lse = mica.logsumexp(scores, -1)
    # A row without a score has weights of zero, where exp(inf - inf) would be NaN.
    weights = mica.exp(scores - lse.masked_fill(mica.isneginf(lse), 0).unsqueeze(-1))
    out = weights.to(query.dtype) @ value.to(query.dtype)
    if return_aux is not None:
        return out, AuxOutput(lse=lse if return_aux.lse else None)
    return (out, lse) if return_lse else out
