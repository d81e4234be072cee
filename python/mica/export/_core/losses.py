"""Losses."""

import mica
from mica.export._core.layers import log_sigmoid
from mica.export._core.rules import decomposes, in_float32, number_like, reduced_loss, sum_of_all

aten = mica.ops.aten


@decomposes("mse_loss")
def _mse_loss(x, target, reduction=1):
    return reduced_loss(aten.pow.Tensor_Scalar(aten.sub.Tensor(x, target), 2), reduction)


@decomposes("l1_loss")
def _l1_loss(x, target, reduction=1):
    return reduced_loss(aten.abs.default(aten.sub.Tensor(x, target)), reduction)


@decomposes("huber_loss")
@in_float32
def _huber_loss(x, target, reduction=1, delta=1.0):
    far = aten.abs.default(aten.sub.Tensor(x, target))
    near = aten.mul.Tensor(aten.mul.Tensor(far, 0.5), far)
    loss = aten.where.self(aten.le.Scalar(far, delta), near, aten.mul.Tensor(aten.sub.Tensor(far, 0.5 * delta), delta))
    return reduced_loss(loss, reduction)


@decomposes("smooth_l1_loss")
@in_float32
def _smooth_l1_loss(x, target, reduction=1, beta=1.0):
    far = aten.abs.default(aten.sub.Tensor(x, target))
    if beta == 0:
        return reduced_loss(far, reduction)
    near = aten.div.Tensor(aten.mul.Tensor(aten.pow.Tensor_Scalar(far, 2), 0.5), beta)
    return reduced_loss(aten.where.self(aten.lt.Scalar(far, beta), near, aten.sub.Tensor(far, 0.5 * beta)), reduction)


@decomposes("binary_cross_entropy")
@in_float32
def _binary_cross_entropy(x, target, weight=None, reduction=1):
    least = aten.full.default([], -100, dtype=x.dtype, device=x.device)
    other = aten.maximum.default(aten.log1p.default(aten.neg.default(x)), least)
    own = aten.maximum.default(aten.log.default(x), least)
    loss = aten.sub.Tensor(aten.mul.Tensor(aten.sub.Tensor(target, 1), other), aten.mul.Tensor(target, own))
    return reduced_loss(loss if weight is None else aten.mul.Tensor(loss, weight), reduction)


@decomposes("binary_cross_entropy_with_logits")
def _binary_cross_entropy_with_logits(x, target, weight=None, pos_weight=None, reduction=1):
    factor = log_sigmoid(x)
    if pos_weight is not None:
        more = aten.add.Tensor(aten.mul.Tensor(aten.sub.Tensor(pos_weight, 1), target), 1)
        factor = aten.mul.Tensor(more, factor)
    loss = aten.sub.Tensor(aten.mul.Tensor(aten.sub.Tensor(1, target), x), factor)
    loss = loss if weight is None else aten.mul.Tensor(loss, weight)
    return reduced_loss(loss if loss.dtype == x.dtype else aten._to_copy.default(loss, dtype=x.dtype), reduction)


@decomposes("nll_loss_forward")
def _nll_loss(x, target, weight=None, reduction=1, ignore_index=-100):
    dim = 0 if x.dim() < 2 else 1
    is_taken = aten.ne.Scalar(target, ignore_index)
    place = aten.unsqueeze.default(aten.where.self(is_taken, target, number_like(0, target)), dim)
    own = None
    if weight is not None:
        sizes = [1] * x.dim()
        sizes[dim] = weight.shape[0]
        own = aten.expand.default(aten.view.default(weight, sizes), list(x.shape))
        x = aten.mul.Tensor(x, own)
        own = aten.squeeze.dims(aten.gather.default(own, dim, place), [dim])
        own = aten.where.self(is_taken, own, number_like(0, own))
    picked = aten.neg.default(aten.squeeze.dims(aten.gather.default(x, dim, place), [dim]))
    loss = aten.where.self(is_taken, picked, number_like(0, picked))
    if reduction == 0 and x.dim() > 1:
        return loss, aten.full.default([], 0.0, dtype=x.dtype, device=x.device)
    count = aten._to_copy.default(sum_of_all(is_taken), dtype=x.dtype) if own is None else sum_of_all(own)
    return (aten.div.Tensor(sum_of_all(loss), count) if reduction == 1 else sum_of_all(loss)), count


@decomposes("cross_entropy_loss")
def _cross_entropy(x, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
    if weight is not None or label_smoothing == 0.0 or x.dim() != 2 or target.dtype.is_floating_point:
        return NotImplemented
    logs = aten._log_softmax.default(x, 1, False)
    loss, count = _nll_loss(logs, target, None, 0, ignore_index)
    is_taken = aten.ne.Scalar(target, ignore_index)
    smooth = aten.neg.default(aten.sum.dim_IntList(logs, [1]))
    smooth = aten.where.self(is_taken, smooth, number_like(0, smooth))
    share = label_smoothing / x.shape[1]
    if reduction:
        loss, smooth = sum_of_all(loss), sum_of_all(smooth)
    if reduction == 1:
        count = aten._to_copy.default(sum_of_all(is_taken), dtype=x.dtype)
        loss, smooth = aten.div.Tensor(loss, count), aten.div.Tensor(smooth, count)
    return aten.add.Tensor(aten.mul.Scalar(loss, 1 - label_smoothing), aten.mul.Scalar(smooth, share))
