"""Losses, draws and solutions whose derivatives the engine computes in one piece, in parts that a graph can show.

Each entry of PARTS takes the arguments of a call and returns a function that computes it, or None where the call is left as
it is.
"""

import mica
from mica import _C
from mica.autograd import Function

__all__ = ["PARTS"]


def _cross_entropy(
    name, input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
    label_smoothing=0.0,
):  # fmt: skip
    """Smoothed labels over an open number of classes: the share of each class is a mean, since a number would be one that
    was invented."""
    sizes = getattr(input, "__dict__", {}).get("_sizes")
    if not label_smoothing or sizes is None or size_average is not None or reduce is not None:
        return None
    dim = min(1, input.dim() - 1)
    if isinstance(sizes[dim], int) or reduction not in ("none", "mean", "sum") or not 0 <= label_smoothing <= 1:
        return None
    shape = [1] * input.dim()
    shape[dim] = -1

    def of_probabilities():
        share = mica.zeros_like(target).softmax(dim)
        shares = target * (1 - label_smoothing) + share * label_smoothing
        return mica.nn.functional.cross_entropy(input, shares, weight, reduction=reduction)

    def of_labels():
        logs = input.log_softmax(dim)
        loss = mica.nn.functional.nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
        smooth = -(logs if weight is None else logs * weight.view(shape)).mean(dim)
        ignored = target == ignore_index
        smooth = smooth.masked_fill(ignored, 0)
        if reduction != "none":
            counts = (~ignored).to(logs.dtype)
            if weight is not None:
                counts = counts * weight[target.masked_fill(ignored, 0)]
            smooth = smooth.sum() if reduction == "sum" else smooth.sum() / counts.sum()
        return (1 - label_smoothing) * loss + label_smoothing * smooth

    return of_probabilities if target.dtype.is_floating_point else of_labels


def _rrelu(name, input, lower=1 / 8, upper=1 / 3, training=False, inplace=False):
    if (
        not training
        or inplace
        or not input.dtype.is_floating_point
        or not float("-inf") < lower <= upper < float("inf")
    ):
        return None

    def parts():  # of minus one, the operator makes the slopes, of which it draws as many as for the input
        signs = mica.where(input.detach() <= 0, -1.0, 1.0).to(input.dtype)
        return input * mica.nn.functional.rrelu(signs, lower, upper, True).abs()

    return parts


def _vander(name, x, N=None, increasing=False):
    if x.dim() != 1 or not (x.is_floating_point() or x.is_complex()) or (N is not None and N < 1):
        return None

    def parts():
        powers = mica.arange(x.shape[0] if N is None else N, device=x.device)
        return x.unsqueeze(-1).pow(powers if increasing else powers.flip(0))

    return parts


def _linalg_vander(name, x, *, N=None):
    if not x.dim() or not (x.is_floating_point() or x.is_complex()) or (x.shape[-1] if N is None else N) < 2:
        return None

    def parts():
        powers = x.unsqueeze(-1).expand(*x.shape, (x.shape[-1] if N is None else N) - 1).cumprod(-1)
        return mica.cat([mica.ones_like(powers[..., :1]), powers], -1)

    return parts


def _householder(name, input, tau):
    if input.dim() < 2 or not tau.numel() or tau.dim() != input.dim() - 1 or input.shape[:-2] != tau.shape[:-1]:
        return None
    if not input.shape[-2] >= input.shape[-1] >= tau.shape[-1] or input.dtype != tau.dtype:
        return None

    def parts():
        rows, columns = input.shape[-2:]
        product = mica.eye(rows, columns, dtype=input.dtype, device=input.device).expand_as(input)
        places = mica.arange(rows, device=input.device)
        for i in reversed(range(tau.shape[-1])):
            vector = mica.where(places > i, input[..., i], (places == i).to(input.dtype)).unsqueeze(-1)
            product = product - tau[..., i, None, None] * (vector @ (vector.mH @ product))
        return product

    return parts


class _LeastSquares(Function):
    """The solution of a system of full rank, with its gradient by the pseudo-inverse."""

    @staticmethod
    def forward(a, b, options):
        return tuple(mica.linalg.lstsq(a, b, **options))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2], output[0])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx, grad, *rest):
        a, b, x = ctx.saved_tensors
        inverse = mica.linalg.pinv(a)
        to_b = inverse.mH @ grad
        rest = grad - inverse @ (a @ grad)
        to_a = (b - a @ x) @ (inverse @ to_b).mH - to_b @ x.mH + (inverse.mH @ x) @ rest.mH
        return to_a, to_b, None


def _lstsq(name, input, b, rcond=None, *, driver=None):
    fits = isinstance(b, _C.TensorBase) and input.dim() >= 2 and input.shape[:-1] == b.shape[:-1] and input.numel()
    if not fits or input.dtype != b.dtype:
        return None
    options = {key: value for key, value in (("rcond", rcond), ("driver", driver)) if value is not None}
    return lambda: mica.return_types.linalg_lstsq(_LeastSquares.apply(input, b, options))


def _embedding_bag(name, input, weight, offsets=None, *args, per_sample_weights=None, **kwargs):
    """Rows of bags of one size: the engine would make the places where they begin by itself."""
    if input.dim() != 2 or offsets is not None or len(args) > 5:
        return None

    def parts():
        begins = mica.arange(input.shape[0], device=input.device) * input.shape[1]
        factors = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        bags = mica.nn.functional.embedding_bag
        return bags(input.reshape(-1), weight, begins, *args, per_sample_weights=factors, **kwargs)

    return parts


PARTS = {
    "embedding_bag": _embedding_bag, "cross_entropy": _cross_entropy, "rrelu": _rrelu, "vander": _vander,
    "linalg_vander": _linalg_vander, "linalg_householder_product": _householder, "householder_product": _householder,
    "orgqr": _householder, "linalg_lstsq": _lstsq, "lstsq": _lstsq,
}  # fmt: skip
