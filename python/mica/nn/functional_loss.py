"""Losses that take a function, and one that makes its logits itself."""

import math
import warnings

from mica import _C
from mica._functions.wrapping import asks_arguments as _asks

__all__ = ["linear_cross_entropy", "triplet_margin_with_distance_loss"]


@_asks
def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    """What lacks for the anchor to be nearer to the positive than to the negative by a margin, in any distance."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    distance = _C.pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _C.minimum(far, distance(positive, negative))
    loss = _C.clamp_min(margin + near - far, 0)
    return loss if reduction == "none" else _C.sum(loss) if reduction == "sum" else _C.mean(loss)


@_asks
def linear_cross_entropy(
    input,
    linear_weight,
    target,
    *,
    linear_bias=None,
    weight=None,
    reduction="mean",
    ignore_index=None,
    label_smoothing=0.0,
    options=None,
):
    """The cross entropy of a linear layer's outputs. With options a few rows at a time, so that the logits of all rows
    never exist together: they are computed again in the backward pass."""
    classes, extra = linear_weight.shape[0], tuple(linear_weight.shape[1:-1])
    _check_linear_cross_entropy(input, linear_weight, linear_bias, extra)
    if target.shape == (*input.shape[:-1], classes, *extra) and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    keywords = {
        "weight": weight,
        "ignore_index": -100 if ignore_index is None else ignore_index,
        "label_smoothing": label_smoothing,
    }
    if options is not None:
        known = reduction in ("mean", "sum", "none")
        if known and label_smoothing == 0 and target.dtype == _C.int64 and not extra:
            return _chunked_cross_entropy(input, linear_weight, target, linear_bias, reduction, keywords, options)
        warnings.warn(
            "linear_cross_entropy: ``options`` ignored; chunked path needs reduction in {'mean','sum','none'}, "
            f"label_smoothing == 0, target.dtype == int64, out_features == (). Got {reduction=!r}, {label_smoothing=}, "
            f"target.dtype={target.dtype}, out_features={extra}",
            stacklevel=2,
        )
    if extra:
        rows = math.prod(extra, start=classes)
        linear_weight = linear_weight.reshape(rows, input.shape[-1])
        linear_bias = None if linear_bias is None else linear_bias.reshape(rows)
    logits = _C._nn_functional.linear(input, linear_weight, linear_bias)
    logits = logits.reshape(*input.shape[:-1], classes, *extra)
    return _C._nn_functional.cross_entropy(logits, target, reduction=reduction, **keywords)


def _check_linear_cross_entropy(input, linear_weight, linear_bias, extra):
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    if input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {input.shape[-1]} and {linear_weight.shape[-1]}, respectively"
        )
    if linear_bias is not None and tuple(linear_bias.shape) != (linear_weight.shape[0], *extra):
        raise RuntimeError(
            f"expected linear_bias shape {(linear_weight.shape[0], *extra)}, got {tuple(linear_bias.shape)}"
        )
    if extra and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {input.shape[-1]}), got unbatched input with shape {tuple(input.shape)}"
        )


def _chunked_cross_entropy(input, linear_weight, target, linear_bias, reduction, keywords, options):
    from mica.utils.checkpoint import checkpoint

    one = input.dim() == 1
    rows, labels = (input.unsqueeze(0), target.unsqueeze(0)) if one else (input, target)
    dtype = options._sum_dtype(input.dtype)
    matrix, bias = linear_weight.to(dtype), None if linear_bias is None else linear_bias.to(dtype)
    weights = None if keywords["weight"] is None else keywords["weight"].to(dtype)
    keywords = {**keywords, "weight": weights, "reduction": "none" if reduction == "none" else "sum"}

    def losses(some_rows, some_labels):
        logits = _C._nn_functional.linear(some_rows.to(dtype), matrix, bias)
        return _C._nn_functional.cross_entropy(logits, some_labels, **keywords)

    size = options._chunk_rows(rows.shape[0], rows.shape[1], linear_weight.shape[0])
    chunks = [
        checkpoint(losses, some_rows, some_labels, use_reentrant=False, preserve_rng_state=False)
        for some_rows, some_labels in zip(rows.split(size), labels.split(size), strict=True)
    ]
    if reduction == "none":
        return (chunks[0][0] if one else _C.cat(chunks)).to(input.dtype)
    total = _C.stack(chunks).sum()
    if reduction == "mean":
        counted = labels.ne(keywords["ignore_index"])
        total = total / (counted.sum() if weights is None else weights[labels[counted]].sum())
    return total.to(input.dtype)
