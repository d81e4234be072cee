"""Decompositions, pools and losses whose derivatives the engine computes in one piece, in parts that a graph can show.

Each entry of PARTS takes the arguments of a call and returns a function that computes it, or None where the call is left as
it is.
"""

import mica
from mica import _C
from mica.autograd import Function

__all__ = ["PARTS"]


def _lu(name, A, *, pivot=True):
    if A.dim() < 2 or not pivot or not A.numel():
        return None

    def parts():
        joined, pivots = mica.linalg.lu_factor(A)
        rows, columns = A.shape[-2:]
        count = min(rows, columns)
        lower = joined[..., :count].tril(-1) + mica.eye(rows, count, dtype=A.dtype, device=A.device)
        order = mica.lu_unpack(joined.detach(), pivots, unpack_data=False)[0]
        return mica.return_types.linalg_lu((order, lower, joined[..., :count, :].triu()))

    return parts


def _fractional(dims):
    def made(name, input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        if input.dim() not in (dims + 1, dims + 2) or (output_size is None and output_ratio is None):
            return None

        def parts():
            pool, samples = getattr(mica.nn.functional, f"fractional_max_pool{dims}d"), _random_samples
            if samples is None:
                batch = input.shape[0] if input.dim() == dims + 2 else 1
                samples = mica.rand(batch, input.shape[-dims - 1], dims, dtype=input.dtype, device=input.device)
            values, places = pool(input.detach(), kernel_size, output_size, output_ratio, True, samples)
            chosen = input.flatten(-dims).gather(-1, places.flatten(-dims)).view(values.shape)
            return (chosen, places) if return_indices or name.endswith("_with_indices") else chosen

        return parts

    return made


class _Ctc(Function):
    """The losses of sequences, with their gradient as the operator that torch has for it."""

    @staticmethod
    def forward(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
        operator = _of_lengths(mica.ops.aten._ctc_loss, input_lengths)
        return operator(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)

    @staticmethod
    def setup_context(ctx, inputs, output):
        log_probs, targets, *ctx.rest = inputs
        ctx.save_for_backward(log_probs, targets, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad, _):
        log_probs, targets, losses, alpha = ctx.saved_tensors
        lengths, blank, zero_infinity = ctx.rest[:2], *ctx.rest[2:]
        operator = _of_lengths(mica.ops.aten._ctc_loss_backward, lengths[0])
        made = operator(grad, log_probs, targets, *lengths, losses, alpha, blank, zero_infinity)
        return made, None, None, None, None, None


def _of_lengths(operator, lengths):
    return operator.Tensor if isinstance(lengths, _C.TensorBase) else operator.default


def _ctc_loss(name, log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    lengths = (input_lengths, target_lengths)
    are_tensors = all(isinstance(each, _C.TensorBase) for each in lengths)
    if log_probs.dim() != 3 or not (are_tensors or all(isinstance(each, (list, tuple)) for each in lengths)):
        return None
    if reduction not in ("none", "mean", "sum"):
        return None

    def parts():
        given = lengths if are_tensors else [list(each) for each in lengths]
        losses = _Ctc.apply(log_probs, targets, *given, blank, zero_infinity)[0]
        if zero_infinity:
            losses = losses.where(losses != float("inf"), 0.0)
        if reduction == "mean":
            counts = given[1] if are_tensors else mica.tensor(given[1], device=losses.device)
            return (losses / counts.to(losses).clamp_min(1)).mean()
        return losses.sum() if reduction == "sum" else losses

    return parts


def _gumbel_softmax(name, logits, tau=1.0, hard=False, eps=1e-10, dim=-1):
    def parts():
        noise = mica.empty_like(logits, memory_format=mica.contiguous_format).exponential_().log()
        soft = ((logits - noise) / tau).softmax(dim)
        if not hard:
            return soft
        chosen = soft.max(dim, keepdim=True)[1]
        one_hot = mica.zeros_like(logits, memory_format=mica.contiguous_format).scatter_(dim, chosen, 1.0)
        return one_hot - soft.detach() + soft

    return parts if eps == 1e-10 else None  # another one is warned of


PARTS = {
    "gumbel_softmax": _gumbel_softmax, "linalg_lu": _lu,
    "fractional_max_pool2d": _fractional(2), "fractional_max_pool3d": _fractional(3),
    "fractional_max_pool2d_with_indices": _fractional(2), "fractional_max_pool3d_with_indices": _fractional(3),
    "ctc_loss": _ctc_loss,
}  # fmt: skip
