"""What torch's core operators do without, said in terms of them: activations, losses, attention, creation, indexing.

Each function takes the arguments of its operator. It returns NotImplemented where the operator is to be left whole.
"""

import functools
import math

import mica
from mica.utils._python_dispatch import _disable_current_modes

__all__ = ["COMPOSITES", "DecompositionTable", "core_table"]

aten = mica.ops.aten
_RULES = {}
_LOW = (mica.float16, mica.bfloat16)


class DecompositionTable(dict):
    """Operators and what they are taken apart into. An operator that is removed from it stays whole."""

    def copy(self):
        return DecompositionTable(self)

    def materialize(self):
        """The same as a plain dict."""
        return dict(self)


def _rule(*names):
    def register(function):
        for name in names:
            packet, _, overload = name.partition(".")
            _RULES[getattr(getattr(aten, packet), overload or "default")] = function
        return function

    return register


def _in_float32(function):
    """The same function, which computes with 16-bit floats in float32."""

    @functools.wraps(function)
    def computed(x, *args, **kwargs):
        if x.dtype not in _LOW:
            return function(x, *args, **kwargs)
        args = [_wide(each) if isinstance(each, mica.Tensor) and each.dtype in _LOW else each for each in args]
        made = function(_wide(x), *args, **kwargs)
        return made if made is NotImplemented else aten._to_copy.default(made, dtype=x.dtype)

    return computed


def _wide(x):
    return aten._to_copy.default(x, dtype=mica.float32)


def _number(value, like):
    return aten.scalar_tensor.default(value, dtype=like.dtype, device=like.device)


def _count(n, like, dtype=mica.int64):
    return aten.arange.start_step(0, n, 1, dtype=dtype, device=like.device)


def _total(x):
    return aten.sum.dim_IntList(x, [])


def _reduced(loss, reduction):
    return loss if reduction == 0 else aten.mean.default(loss) if reduction == 1 else _total(loss)


# ---- views by other names


@_rule("t")
def _t(x):
    return x.permute(*reversed(range(x.dim())))


@_rule("transpose.int")
def _transpose(x, a, b):
    order = list(range(x.dim()))
    order[a], order[b] = order[b], order[a]
    return x.permute(order)


@_rule("_unsafe_view")
def _unsafe_view(x, size):
    return x.view(size)


@_rule("squeeze.dim")
def _squeeze(x, dim):
    return aten.squeeze.dims(x, [dim])


@_rule("squeeze")
def _squeeze_all(x):
    return aten.squeeze.dims(x, [i for i, size in enumerate(x.shape) if isinstance(size, int) and size == 1])


@_rule("detach")
def _detach(x):
    return aten.alias.default(x)


@_rule("split.Tensor")
def _split(x, size, dim=0):
    total = x.shape[dim]
    if not isinstance(size, int) or not isinstance(total, int) or size == 0:
        return NotImplemented
    return aten.split_with_sizes.default(x, [min(size, total - i) for i in range(0, total, size)] or [0], dim)


@_rule("unbind.int")
def _unbind(x, dim=0):
    if not isinstance(x.shape[dim], int):
        return NotImplemented
    return tuple(aten.squeeze.dims(aten.slice.Tensor(x, dim, i, i + 1), [dim]) for i in range(x.shape[dim]))


@_rule("stack")
def _stack(tensors, dim=0):
    dim %= tensors[0].dim() + 1
    sizes = list(tensors[0].shape)
    if dim == 0 and sizes:
        return aten.view.default(aten.cat.default(list(tensors)), [len(tensors), *sizes])
    return aten.cat.default([aten.unsqueeze.default(each, dim) for each in tensors], dim)


@_rule("rot90")
def _rot90(x, k=1, dims=(0, 1)):
    a, b = (dim % x.dim() for dim in dims)
    if k % 4 in (0, 2):
        return aten.flip.default(x, [a, b]) if k % 4 else aten.clone.default(x)
    order = list(range(x.dim()))
    order[a], order[b] = order[b], order[a]
    if k % 4 == 1:
        return aten.permute.default(aten.flip.default(x, [b]), order)
    return aten.flip.default(aten.permute.default(x, order), [b])


@_rule("pixel_shuffle")
def _pixel_shuffle(x, factor):
    *outer, channels, height, width = x.shape
    n, few = len(outer), channels // (factor * factor)
    parts = aten.view.default(x, [*outer, few, factor, factor, height, width])
    turned = aten.permute.default(parts, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    dense = aten.clone.default(turned, memory_format=mica.contiguous_format)
    return aten.view.default(dense, [*outer, few, height * factor, width * factor])


# ---- activations


@_rule("silu")
@_in_float32
def _silu(x):
    return aten.mul.Tensor(x, aten.sigmoid.default(x))


def _from_0_to_6(x):
    return aten.clamp.default(aten.clamp.default(aten.add.Tensor(x, 3), 0), None, 6)


@_rule("hardswish")
@_in_float32
def _hardswish(x):
    return aten.div.Tensor(aten.mul.Tensor(x, _from_0_to_6(x)), 6)


@_rule("hardsigmoid")
@_in_float32
def _hardsigmoid(x):
    return aten.div.Tensor(_from_0_to_6(x), 6)


@_rule("selu")
def _selu(x):
    return aten.elu.default(x, 1.6732632423543772, 1.0507009873554805)


@_rule("celu")
@_in_float32
def _celu(x, alpha=1.0):
    if alpha == 1:
        below = aten.expm1.default(x)
    else:
        below = aten.mul.Tensor(aten.expm1.default(aten.div.Tensor(x, alpha)), alpha)
    return aten.where.self(aten.gt.Scalar(x, 0), x, below)


@_rule("_prelu_kernel")
def _prelu(x, weight):
    return aten.where.self(aten.gt.Scalar(x, 0), x, aten.mul.Tensor(weight, x))


@_rule("softplus")
@_in_float32
def _softplus(x, beta=1, threshold=20):
    scaled = aten.mul.Tensor(x, beta)
    grown = aten.div.Tensor(aten.log1p.default(aten.exp.default(scaled)), beta)
    return aten.where.self(aten.gt.Scalar(scaled, threshold), x, grown)


@_rule("mish")
@_in_float32
def _mish(x):
    grown = aten.where.self(aten.gt.Scalar(x, 20), x, aten.log1p.default(aten.exp.default(x)))
    return aten.mul.Tensor(x, aten.tanh.default(grown))


@_rule("log_sigmoid")
@_in_float32
def _log_sigmoid(x):
    least = aten.minimum.default(aten.full.default([], 0, dtype=x.dtype, device=x.device), x)
    return aten.sub.Tensor(least, aten.log1p.default(aten.exp.default(aten.neg.default(aten.abs.default(x)))))


@_rule("glu")
@_in_float32
def _glu(x, dim=-1):
    size = x.shape[dim]
    if not isinstance(size, int) or size % 2:
        return NotImplemented
    first, second = aten.slice.Tensor(x, dim, 0, size // 2), aten.slice.Tensor(x, dim, size // 2, size)
    return aten.mul.Tensor(first, aten.sigmoid.default(second))


@_rule("softshrink")
def _softshrink(x, lambd=0.5):
    is_far = aten.gt.Scalar(aten.abs.default(x), lambd)
    nearer = aten.sub.Tensor(x, aten.mul.Tensor(aten.sign.default(x), lambd))
    return aten.where.self(is_far, nearer, aten.mul.Tensor(x, 0))


@_rule("hardshrink")
def _hardshrink(x, lambd=0.5):
    return aten.where.self(aten.le.Scalar(aten.abs.default(x), lambd), _number(0, x), x)


@_rule("threshold")
def _threshold(x, threshold, value):
    return aten.where.self(aten.le.Scalar(x, threshold), _number(value, x), x)


# ---- layers


@_rule("rms_norm")
@_in_float32
def _rms_norm(x, normalized_shape, weight=None, eps=None):
    eps = mica.finfo(x.dtype).eps if eps is None else eps
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    mean = aten.mean.dim(aten.pow.Tensor_Scalar(x, 2), dims, True)
    made = aten.mul.Tensor(x, aten.rsqrt.default(aten.add.Scalar(mean, eps)))
    return made if weight is None else aten.mul.Tensor(made, weight)


@_rule("max_pool1d")
def _max_pool1d(x, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    def pair(value, other):
        return [other, *value] if isinstance(value, (list, tuple)) else [other, value]

    stride = stride if not isinstance(stride, (list, tuple)) or stride else kernel_size
    made = aten.max_pool2d_with_indices.default(
        aten.unsqueeze.default(x, -2),
        pair(kernel_size, 1), pair(stride, 1), pair(padding, 0), pair(dilation, 1), ceil_mode,
    )  # fmt: skip
    return aten.squeeze.dims(made[0], [-2])


@_rule("adaptive_avg_pool1d")
def _adaptive_avg_pool1d(x, output_size):
    size = list(output_size) if isinstance(output_size, (list, tuple)) else [output_size]
    return aten.squeeze.dims(aten._adaptive_avg_pool2d.default(aten.unsqueeze.default(x, -2), [1, *size]), [-2])


@_rule("pad")
def _pad(x, pad, mode="constant", value=None):
    if mode == "constant":
        return aten.constant_pad_nd.default(x, list(pad), 0.0 if value is None else value)
    ends = [(pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)]  # from the last dimension on
    for i, (before, after) in enumerate(ends):
        dim = x.dim() - 1 - i
        size = x.shape[dim]
        if not all(isinstance(each, int) for each in (size, before, after)):
            return NotImplemented
        place = aten.arange.start_step(-before, size + after, 1, dtype=mica.int64, device=x.device)
        if mode == "reflect":
            last = size - 1
            place = aten.sub.Tensor(last, aten.abs.default(place))
            place = aten.sub.Tensor(last, aten.abs.default(place))
        elif mode == "replicate":
            place = aten.clamp.default(place, 0, size - 1)
        else:
            place = aten.remainder.Scalar(place, size)
        x = aten.index.Tensor(x, [*([None] * dim), place])
    return x


@_rule("lstm_cell")
def _lstm_cell(x, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    h, c = hx
    gates = mica.nn.functional.linear(x, w_ih, b_ih) + mica.nn.functional.linear(h, w_hh, b_hh)
    i, f, g, o = gates.chunk(4, 1)
    c = aten.add.Tensor(f.sigmoid() * c, i.sigmoid() * g.tanh())
    return o.sigmoid() * c.tanh(), c


@_rule("gru_cell")
def _gru_cell(x, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    given = mica.nn.functional.linear(x, w_ih, b_ih).chunk(3, 1)
    kept = mica.nn.functional.linear(hx, w_hh, b_hh).chunk(3, 1)
    reset, update = (aten.sigmoid.default(kept[i] + given[i]) for i in (0, 1))
    new = aten.tanh.default(given[2] + kept[2] * reset)
    return (hx - new) * update + new


@_rule("scaled_dot_product_attention")
def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    if dropout_p:
        return NotImplemented
    dtype, mask = query.dtype, attn_mask
    if dtype in _LOW:
        query, key, value = map(_wide, (query, key, value))
        mask = _wide(mask) if mask is not None and mask.dtype in _LOW else mask
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    factor = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    query = aten.mul.Scalar(query, factor)
    if is_causal:
        rows, columns = _count(query.shape[-2], query), _count(key.shape[-2], query)
        mask = aten.le.Tensor(columns, aten.unsqueeze.default(rows, -1))
    if mask is not None and mask.dtype is mica.bool:
        mask = aten.where.self(mask, _number(0.0, query), _number(float("-inf"), query))
    scores = mica.matmul(query, aten.mul.Scalar(key.transpose(-2, -1), factor))
    if mask is not None:
        scores = aten.add.Tensor(scores, mask)
    weights = aten._softmax.default(scores, -1, False)
    # A row that may look at nothing gives zeros.
    is_seen = aten.any.dim(aten.logical_not.default(aten.eq.Scalar(scores, float("-inf"))), -1, True)
    weights = aten.where.self(aten.logical_not.default(is_seen), aten.full_like.default(weights, 0), weights)
    made = mica.matmul(weights, value)
    return aten._to_copy.default(made, dtype=dtype) if dtype in _LOW else made


# ---- losses


@_rule("mse_loss")
def _mse_loss(x, target, reduction=1):
    return _reduced(aten.pow.Tensor_Scalar(aten.sub.Tensor(x, target), 2), reduction)


@_rule("l1_loss")
def _l1_loss(x, target, reduction=1):
    return _reduced(aten.abs.default(aten.sub.Tensor(x, target)), reduction)


@_rule("huber_loss")
@_in_float32
def _huber_loss(x, target, reduction=1, delta=1.0):
    far = aten.abs.default(aten.sub.Tensor(x, target))
    near = aten.mul.Tensor(aten.mul.Tensor(far, 0.5), far)
    loss = aten.where.self(aten.le.Scalar(far, delta), near, aten.mul.Tensor(aten.sub.Tensor(far, 0.5 * delta), delta))
    return _reduced(loss, reduction)


@_rule("smooth_l1_loss")
@_in_float32
def _smooth_l1_loss(x, target, reduction=1, beta=1.0):
    far = aten.abs.default(aten.sub.Tensor(x, target))
    if beta == 0:
        return _reduced(far, reduction)
    near = aten.div.Tensor(aten.mul.Tensor(aten.pow.Tensor_Scalar(far, 2), 0.5), beta)
    return _reduced(aten.where.self(aten.lt.Scalar(far, beta), near, aten.sub.Tensor(far, 0.5 * beta)), reduction)


@_rule("binary_cross_entropy")
@_in_float32
def _binary_cross_entropy(x, target, weight=None, reduction=1):
    least = aten.full.default([], -100, dtype=x.dtype, device=x.device)
    other = aten.maximum.default(aten.log1p.default(aten.neg.default(x)), least)
    own = aten.maximum.default(aten.log.default(x), least)
    loss = aten.sub.Tensor(aten.mul.Tensor(aten.sub.Tensor(target, 1), other), aten.mul.Tensor(target, own))
    return _reduced(loss if weight is None else aten.mul.Tensor(loss, weight), reduction)


@_rule("binary_cross_entropy_with_logits")
def _binary_cross_entropy_with_logits(x, target, weight=None, pos_weight=None, reduction=1):
    factor = _log_sigmoid(x)
    if pos_weight is not None:
        more = aten.add.Tensor(aten.mul.Tensor(aten.sub.Tensor(pos_weight, 1), target), 1)
        factor = aten.mul.Tensor(more, factor)
    loss = aten.sub.Tensor(aten.mul.Tensor(aten.sub.Tensor(1, target), x), factor)
    loss = loss if weight is None else aten.mul.Tensor(loss, weight)
    return _reduced(loss if loss.dtype == x.dtype else aten._to_copy.default(loss, dtype=x.dtype), reduction)


@_rule("nll_loss_forward")
def _nll_loss(x, target, weight=None, reduction=1, ignore_index=-100):
    dim = 0 if x.dim() < 2 else 1
    is_taken = aten.ne.Scalar(target, ignore_index)
    place = aten.unsqueeze.default(aten.where.self(is_taken, target, _number(0, target)), dim)
    own = None
    if weight is not None:
        sizes = [1] * x.dim()
        sizes[dim] = weight.shape[0]
        own = aten.expand.default(aten.view.default(weight, sizes), list(x.shape))
        x = aten.mul.Tensor(x, own)
        own = aten.squeeze.dims(aten.gather.default(own, dim, place), [dim])
        own = aten.where.self(is_taken, own, _number(0, own))
    picked = aten.neg.default(aten.squeeze.dims(aten.gather.default(x, dim, place), [dim]))
    loss = aten.where.self(is_taken, picked, _number(0, picked))
    if reduction == 0 and x.dim() > 1:
        return loss, aten.full.default([], 0.0, dtype=x.dtype, device=x.device)
    count = aten._to_copy.default(_total(is_taken), dtype=x.dtype) if own is None else _total(own)
    return (aten.div.Tensor(_total(loss), count) if reduction == 1 else _total(loss)), count


@_rule("cross_entropy_loss")
def _cross_entropy(x, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
    if weight is not None or label_smoothing == 0.0 or x.dim() != 2 or target.dtype.is_floating_point:
        return NotImplemented
    logs = aten._log_softmax.default(x, 1, False)
    loss, count = _nll_loss(logs, target, None, 0, ignore_index)
    is_taken = aten.ne.Scalar(target, ignore_index)
    smooth = aten.neg.default(aten.sum.dim_IntList(logs, [1]))
    smooth = aten.where.self(is_taken, smooth, _number(0, smooth))
    share = label_smoothing / x.shape[1]
    if reduction:
        loss, smooth = _total(loss), _total(smooth)
    if reduction == 1:
        count = aten._to_copy.default(_total(is_taken), dtype=x.dtype)
        loss, smooth = aten.div.Tensor(loss, count), aten.div.Tensor(smooth, count)
    return aten.add.Tensor(aten.mul.Scalar(loss, 1 - label_smoothing), aten.mul.Scalar(smooth, share))


# ---- arithmetic


@_rule("rsub.Scalar", "rsub.Tensor")
def _rsub(x, other, alpha=1):
    return aten.sub.Tensor(other, x if alpha == 1 else aten.mul.Tensor(x, alpha))


@_rule("addcmul")
def _addcmul(x, a, b, *, value=1):
    product = aten.mul.Tensor(a, b)
    return aten.add.Tensor(x, product if value == 1 else aten.mul.Tensor(product, value))


@_rule("addcdiv")
def _addcdiv(x, a, b, *, value=1):
    return aten.add.Tensor(x, aten.div.Tensor(a if value == 1 else aten.mul.Tensor(a, value), b))


@_rule("lerp.Scalar", "lerp.Tensor")
@_in_float32
def _lerp(x, end, weight):
    if not isinstance(weight, mica.Tensor):
        weight = aten.full.default([], weight, dtype=x.dtype, device=x.device)
    is_late = aten.ge.Scalar(aten.abs.default(weight), 0.5)
    factor = aten.where.self(is_late, aten.sub.Tensor(weight, 1), weight)
    base = aten.where.self(is_late, end, x)
    return aten.add.Tensor(aten.mul.Tensor(factor, aten.sub.Tensor(end, x)), base)


@_rule("floor_divide", "floor_divide.Scalar")
def _floor_divide(x, other):
    return aten.div.Tensor_mode(x, other, rounding_mode="floor")


@_rule("frac")
def _frac(x):
    return aten.sub.Tensor(x, aten.trunc.default(x))


@_rule("deg2rad")
def _deg2rad(x):
    return aten.mul.Tensor(x, math.pi / 180)


@_rule("rad2deg")
def _rad2deg(x):
    return aten.mul.Tensor(x, 180 / math.pi)


@_rule("sinc")
@_in_float32
def _sinc(x):
    if not x.dtype.is_floating_point:
        return NotImplemented
    angle = aten.mul.Tensor(x, math.pi)
    ratio = aten.div.Tensor(aten.sin.default(angle), angle)
    return aten.where.self(aten.eq.Scalar(angle, 0), _number(1, ratio), ratio)


@_rule("xlogy.Tensor")
@_in_float32
def _xlogy(x, y):
    if not x.dtype.is_floating_point or x.dtype != y.dtype:
        return NotImplemented
    product = aten.mul.Tensor(x, aten.log.default(y))
    made = aten.where.self(aten.eq.Scalar(x, 0), _number(0, product), product)
    return aten.where.self(aten.isnan.default(y), _number(math.nan, made), made)


@_rule("logit")
@_in_float32
def _logit(x, eps=None):
    if not x.dtype.is_floating_point:
        return NotImplemented
    if eps is not None:
        x = aten.clamp.default(x, eps, 1 - eps)
    return aten.log.default(aten.div.Tensor(x, aten.sub.Tensor(1, x)))


@_rule("isfinite")
def _isfinite(x):
    if not x.dtype.is_floating_point:
        return NotImplemented
    return aten.mul.Tensor(aten.eq.Tensor(x, x), aten.ne.Scalar(aten.abs.default(x), math.inf))


@_rule("nan_to_num")
def _nan_to_num(x, nan=None, posinf=None, neginf=None):
    if not x.dtype.is_floating_point:
        return NotImplemented
    ends = mica.finfo(x.dtype)
    x = aten.where.self(aten.isnan.default(x), _number(0.0 if nan is None else nan, x), x)
    x = aten.where.self(aten.eq.Scalar(x, -math.inf), _number(ends.min if neginf is None else neginf, x), x)
    return aten.where.self(aten.eq.Scalar(x, math.inf), _number(ends.max if posinf is None else posinf, x), x)


@_rule("clamp_min")
def _clamp_min(x, min):
    return aten.clamp.default(x, min)


@_rule("clamp_max")
def _clamp_max(x, max):
    return aten.clamp.default(x, None, max)


@_rule("masked_fill.Scalar")
def _masked_fill(x, mask, value):
    return aten.where.self(mask, _number(value, x), x)


@_rule("where.ScalarOther")
def _where_other(condition, x, other):
    return _where(condition, x, _scalar_like(other, x))


@_rule("where.ScalarSelf")
def _where_self(condition, x, other):
    return _where(condition, _scalar_like(x, other), other)


def _scalar_like(value, like):
    with _disable_current_modes():
        dtype = mica.result_type(mica.empty((1,), dtype=like.dtype, device="meta"), value)
    return aten.scalar_tensor.default(value, dtype=dtype, device=like.device)


def _where(condition, a, b):
    return aten.where.self(condition, a, b)


# ---- products and reductions


@_rule("mv")
def _mv(x, vec):
    return aten.sum.dim_IntList(aten.mul.Tensor(x, vec), [1])


@_rule("dot")
def _dot(x, other):
    return aten.sum.dim_IntList(aten.mul.Tensor(x, other), [0])


@_rule("baddbmm")
def _baddbmm(x, a, b, *, beta=1, alpha=1):
    product = aten.bmm.default(a, b)
    product = product if alpha == 1 else aten.mul.Tensor(product, alpha)
    if beta == 0:
        return product
    return aten.add.Tensor(product, x if beta == 1 else aten.mul.Tensor(x, beta))


@_rule("sum")
def _sum(x, *, dtype=None):
    return aten.sum.dim_IntList(x, []) if dtype is None else aten.sum.dim_IntList(x, [], dtype=dtype)


@_rule("std.correction")
def _std(x, dim=None, *, correction=None, keepdim=False):
    return aten.sqrt.default(aten.var.correction(x, dim, correction=correction, keepdim=keepdim))


@_rule("std_mean.correction")
def _std_mean(x, dim=None, *, correction=None, keepdim=False):
    var, mean = aten.var_mean.correction(x, dim, correction=correction, keepdim=keepdim)
    return aten.sqrt.default(var), mean


@_rule("norm.Scalar")
def _norm(x, p=2):
    return aten.linalg_vector_norm.default(x, p)


@_rule("norm.ScalarOpt_dim")
def _norm_of_dims(x, p, dim, keepdim=False):
    return aten.linalg_vector_norm.default(x, 2 if p is None else p, dim, keepdim)


@_rule("all")
def _all(x):
    return aten.logical_not.default(aten.any.dims(aten.logical_not.default(x), None))


@_rule("all.dim")
def _all_of_dim(x, dim, keepdim=False):
    return aten.logical_not.default(aten.any.dim(aten.logical_not.default(x), dim, keepdim))


@_rule("aminmax")
def _aminmax(x, *, dim=None, keepdim=False):
    dims = [] if dim is None else [dim]
    return aten.amin.default(x, dims, keepdim), aten.amax.default(x, dims, keepdim)


@_rule("count_nonzero")
def _count_nonzero(x, dim=None):
    return aten.sum.dim_IntList(aten.ne.Scalar(x, 0), [] if dim is None else [dim])


@_rule("logsumexp")
def _logsumexp(x, dim, keepdim=False):
    dims = list(dim) if isinstance(dim, (list, tuple)) else [dim]
    if not x.dtype.is_floating_point or x.dim() == 0:
        return NotImplemented
    top = aten.amax.default(x, dims, True)
    top = aten.where.self(aten.eq.Scalar(aten.abs.default(top), math.inf), _number(0.0, top), top)
    total = aten.log.default(aten.sum.dim_IntList(aten.exp.default(aten.sub.Tensor(x, top)), dims, keepdim))
    return aten.add.Tensor(total, top if keepdim else aten.squeeze.dims(top, dims))


@_rule("nansum")
def _nansum(x, dim=None, keepdim=False, *, dtype=None):
    if not x.dtype.is_floating_point or dtype is not None:
        return NotImplemented
    known = aten.where.self(aten.isnan.default(x), _number(0, x), x)
    return aten.sum.dim_IntList(known, [] if dim is None else dim, keepdim)


@_rule("cosine_similarity")
@_in_float32
def _cosine_similarity(x, y, dim=1, eps=1e-8):
    if not x.dtype.is_floating_point or x.dtype != y.dtype:
        return NotImplemented
    if x.dim() != y.dim():
        x, y = mica.broadcast_tensors(x, y)
    made = []
    for each in (x, y):
        length = aten.linalg_vector_norm.default(each, 2, [dim], True)
        made.append(aten.div.Tensor(each, aten.clamp.Tensor(length, _number(eps, each))))
    return aten.sum.dim_IntList(aten.mul.Tensor(*made), [dim])


@_rule("isclose")
def _isclose(x, y, rtol=1e-05, atol=1e-08, equal_nan=False):
    if equal_nan or not x.dtype.is_floating_point:
        return NotImplemented
    room = aten.add.Scalar(aten.abs.default(aten.mul.Scalar(y, rtol)), atol)
    far = aten.abs.default(aten.sub.Tensor(x, y))
    is_near = aten.bitwise_and.Tensor(_isfinite(far), aten.le.Tensor(far, room))
    return aten.bitwise_or.Tensor(aten.eq.Tensor(x, y), is_near)


@_rule("logaddexp")
@_in_float32
def _logaddexp(x, y):
    if not x.dtype.is_floating_point or x.dtype != y.dtype:
        return NotImplemented
    is_more = aten.ge.Tensor(x, y)
    top, low = aten.where.self(is_more, x, y), aten.where.self(is_more, y, x)
    is_same = aten.logical_and.default(aten.eq.Tensor(x, y), aten.logical_not.default(_isfinite(x)))
    grown = aten.add.Tensor(top, aten.log1p.default(aten.exp.default(aten.sub.Tensor(low, top))))
    return aten.where.self(is_same, x, grown)


@_rule("argsort")
def _argsort(x, dim=-1, descending=False):
    return aten.sort.default(x, dim, descending)[1]


@_rule("trace")
def _trace(x):
    return _total(aten.diagonal.default(x))


# ---- creation


def _filled(value):
    def made(size, *, dtype=None, layout=None, device=None, pin_memory=None):
        if layout not in (None, mica.strided):
            return NotImplemented
        dtype = mica.get_default_dtype() if dtype is None else dtype
        return aten.full.default(size, value, dtype=dtype, device=device, pin_memory=pin_memory or False)

    return made


def _new(value):
    def made(x, size, *given, dtype=None, layout=None, device=None, pin_memory=None):
        number = given[0] if value is None else value
        dtype, device = x.dtype if dtype is None else dtype, x.device if device is None else device
        return aten.full.default(size, number, dtype=dtype, device=device, pin_memory=False)

    return made


def _like(value):
    def made(x, **kwargs):
        return aten.full_like.default(x, value, **kwargs)

    return made


for _name, _value in (("zeros", 0), ("ones", 1)):
    _RULES[getattr(aten, _name).default] = _filled(_value)
    _RULES[getattr(aten, f"new_{_name}").default] = _new(_value)
    _RULES[getattr(aten, f"{_name}_like").default] = _like(_value)
_RULES[aten.new_full.default] = _new(None)


@_rule("eye")
def _eye(n, *, dtype=None, layout=None, device=None, pin_memory=None):
    return _eye_of(n, n, dtype=dtype, device=device)


@_rule("eye.m")
def _eye_of(n, m, *, dtype=None, layout=None, device=None, pin_memory=None):
    dtype = mica.get_default_dtype() if dtype is None else dtype
    rows = aten.arange.start_step(0, n, 1, dtype=mica.int64, device=device)
    columns = aten.arange.start_step(0, m, 1, dtype=mica.int64, device=device)
    return aten._to_copy.default(aten.eq.Tensor(aten.unsqueeze.default(rows, -1), columns), dtype=dtype)


def _beside_diagonal(x):
    columns = aten.unsqueeze.default(_count(x.shape[-1], x), -2)
    return aten.sub.Tensor(columns, aten.unsqueeze.default(_count(x.shape[-2], x), -1))


@_rule("tril")
def _tril(x, diagonal=0):
    return aten.where.self(aten.le.Scalar(_beside_diagonal(x), diagonal), x, _number(0, x))


@_rule("triu")
def _triu(x, diagonal=0):
    return aten.where.self(aten.ge.Scalar(_beside_diagonal(x), diagonal), x, _number(0, x))


# ---- indices


def _placed(dim, index):
    return [*([None] * dim), index]


def _index_copy(put):
    def rule(x, dim, index, source):
        return put(x, _placed(dim % x.dim(), index), source) if x.dim() else NotImplemented

    return rule


def _index_add(put):
    def rule(x, dim, index, source, *, alpha=1):
        if not x.dim():
            return NotImplemented
        source = source if alpha == 1 else aten.mul.Tensor(source, alpha)
        return put(x, _placed(dim % x.dim(), index), source, True)

    return rule


def _index_fill(put):
    def rule(x, dim, index, value):
        return put(x, _placed(dim % x.dim(), index), _number(value, x)) if x.dim() else NotImplemented

    return rule


for _ending, _put in (("", aten.index_put.default), ("_", aten.index_put_.default)):
    _RULES[getattr(aten, f"index_copy{_ending}").default] = _index_copy(_put)
    _RULES[getattr(aten, f"index_add{_ending}").default] = _index_add(_put)
    _RULES[getattr(aten, f"index_fill{_ending}").int_Scalar] = _index_fill(_put)


@_rule("take")
def _take(x, index):
    return aten.index.Tensor(aten.view.default(x, [-1]), [index]) if x.is_contiguous() else NotImplemented


# ---- composites, which are operators of exported graphs and are taken apart by what they are made of

_NAMES = """
    linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d matmul einsum bilinear batch_norm layer_norm
    group_norm instance_norm rms_norm dropout feature_dropout alpha_dropout softmax log_softmax cross_entropy_loss nll_loss nll_loss2d
    nll_loss_nd scaled_dot_product_attention adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d max_pool1d
    max_pool2d max_pool3d lstm gru rnn_tanh rnn_relu lstm_cell gru_cell pad relu6 selu l1_loss log_sigmoid prelu cosine_similarity
    embedding_bag grid_sampler triplet_margin_loss margin_ranking_loss hinge_embedding_loss cosine_embedding_loss kl_div one_hot
    tensordot isclose argsort std std_mean var var_mean square trapezoid diff cdist outer
"""
COMPOSITES = frozenset(_NAMES.split())


def _whole(op):
    def composite(*args, **kwargs):
        """What the operator is made of."""
        return op(*args, **kwargs)

    return composite


def core_table():
    """A new table of all of them."""
    table = DecompositionTable(_RULES)
    for name in sorted(COMPOSITES):
        packet = getattr(aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            if "out" not in overload and op not in table:
                table[op] = _COMPOSITE_MARKS.setdefault(op, _whole(op))
    return table


_COMPOSITE_MARKS = {}


def is_mark(function):
    """Whether a table's entry only says that a composite is taken apart."""
    return any(function is mark for mark in _COMPOSITE_MARKS.values())
