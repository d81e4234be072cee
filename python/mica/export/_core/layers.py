"""Activations and layers."""

import mica
from mica.export._core.rules import LOW, decomposes, in_float32, number_like, positions, widened

aten = mica.ops.aten


# ---- activations


@decomposes("silu")
@in_float32
def _silu(x):
    return aten.mul.Tensor(x, aten.sigmoid.default(x))


def _from_0_to_6(x):
    return aten.clamp.default(aten.clamp.default(aten.add.Tensor(x, 3), 0), None, 6)


@decomposes("hardswish")
@in_float32
def _hardswish(x):
    return aten.div.Tensor(aten.mul.Tensor(x, _from_0_to_6(x)), 6)


@decomposes("hardsigmoid")
@in_float32
def _hardsigmoid(x):
    return aten.div.Tensor(_from_0_to_6(x), 6)


@decomposes("selu")
def _selu(x):
    return aten.elu.default(x, 1.6732632423543772, 1.0507009873554805)


@decomposes("celu")
@in_float32
def _celu(x, alpha=1.0):
    if alpha == 1:
        below = aten.expm1.default(x)
    else:
        below = aten.mul.Tensor(aten.expm1.default(aten.div.Tensor(x, alpha)), alpha)
    return aten.where.self(aten.gt.Scalar(x, 0), x, below)


@decomposes("_prelu_kernel")
def _prelu(x, weight):
    return aten.where.self(aten.gt.Scalar(x, 0), x, aten.mul.Tensor(weight, x))


@decomposes("softplus")
@in_float32
def _softplus(x, beta=1, threshold=20):
    scaled = aten.mul.Tensor(x, beta)
    grown = aten.div.Tensor(aten.log1p.default(aten.exp.default(scaled)), beta)
    return aten.where.self(aten.gt.Scalar(scaled, threshold), x, grown)


@decomposes("mish")
@in_float32
def _mish(x):
    grown = aten.where.self(aten.gt.Scalar(x, 20), x, aten.log1p.default(aten.exp.default(x)))
    return aten.mul.Tensor(x, aten.tanh.default(grown))


@decomposes("log_sigmoid")
@in_float32
def log_sigmoid(x):
    least = aten.minimum.default(aten.full.default([], 0, dtype=x.dtype, device=x.device), x)
    return aten.sub.Tensor(least, aten.log1p.default(aten.exp.default(aten.neg.default(aten.abs.default(x)))))


@decomposes("glu")
@in_float32
def _glu(x, dim=-1):
    size = x.shape[dim]
    if not isinstance(size, int) or size % 2:
        return NotImplemented
    first, second = aten.slice.Tensor(x, dim, 0, size // 2), aten.slice.Tensor(x, dim, size // 2, size)
    return aten.mul.Tensor(first, aten.sigmoid.default(second))


@decomposes("softshrink")
def _softshrink(x, lambd=0.5):
    is_far = aten.gt.Scalar(aten.abs.default(x), lambd)
    nearer = aten.sub.Tensor(x, aten.mul.Tensor(aten.sign.default(x), lambd))
    return aten.where.self(is_far, nearer, aten.mul.Tensor(x, 0))


@decomposes("hardshrink")
def _hardshrink(x, lambd=0.5):
    return aten.where.self(aten.le.Scalar(aten.abs.default(x), lambd), number_like(0, x), x)


@decomposes("threshold")
def _threshold(x, threshold, value):
    return aten.where.self(aten.le.Scalar(x, threshold), number_like(value, x), x)


# ---- layers


@decomposes("rms_norm")
@in_float32
def _rms_norm(x, normalized_shape, weight=None, eps=None):
    eps = mica.finfo(x.dtype).eps if eps is None else eps
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    mean = aten.mean.dim(aten.pow.Tensor_Scalar(x, 2), dims, True)
    made = aten.mul.Tensor(x, aten.rsqrt.default(aten.add.Scalar(mean, eps)))
    return made if weight is None else aten.mul.Tensor(made, weight)


@decomposes("max_pool1d")
def _max_pool1d(x, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    def pair(value, other):
        return [other, *value] if isinstance(value, (list, tuple)) else [other, value]

    stride = stride if not isinstance(stride, (list, tuple)) or stride else kernel_size
    made = aten.max_pool2d_with_indices.default(
        aten.unsqueeze.default(x, -2),
        pair(kernel_size, 1), pair(stride, 1), pair(padding, 0), pair(dilation, 1), ceil_mode,
    )  # fmt: skip
    return aten.squeeze.dims(made[0], [-2])


@decomposes("adaptive_avg_pool1d")
def _adaptive_avg_pool1d(x, output_size):
    size = list(output_size) if isinstance(output_size, (list, tuple)) else [output_size]
    return aten.squeeze.dims(aten._adaptive_avg_pool2d.default(aten.unsqueeze.default(x, -2), [1, *size]), [-2])


@decomposes("pad")
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


@decomposes("lstm_cell")
def _lstm_cell(x, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    h, c = hx
    gates = mica.nn.functional.linear(x, w_ih, b_ih) + mica.nn.functional.linear(h, w_hh, b_hh)
    i, f, g, o = gates.chunk(4, 1)
    c = aten.add.Tensor(f.sigmoid() * c, i.sigmoid() * g.tanh())
    return o.sigmoid() * c.tanh(), c


@decomposes("gru_cell")
def _gru_cell(x, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    given = mica.nn.functional.linear(x, w_ih, b_ih).chunk(3, 1)
    kept = mica.nn.functional.linear(hx, w_hh, b_hh).chunk(3, 1)
    reset, update = (aten.sigmoid.default(kept[i] + given[i]) for i in (0, 1))
    new = aten.tanh.default(given[2] + kept[2] * reset)
    return (hx - new) * update + new


@decomposes("scaled_dot_product_attention")
def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    if dropout_p:
        return NotImplemented
    dtype, mask = query.dtype, attn_mask
    if dtype in LOW:
        query, key, value = map(widened, (query, key, value))
        mask = widened(mask) if mask is not None and mask.dtype in LOW else mask
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    factor = mica.sym_sqrt(1 / mica.sym_sqrt(query.shape[-1]) if scale is None else scale)  # sizes may be open
    query = aten.mul.Scalar(query, factor)
    if is_causal:
        rows, columns = positions(query.shape[-2], query), positions(key.shape[-2], query)
        mask = aten.le.Tensor(columns, aten.unsqueeze.default(rows, -1))
    if mask is not None and mask.dtype is mica.bool:
        mask = aten.where.self(mask, number_like(0.0, query), number_like(float("-inf"), query))
    scores = mica.matmul(query, aten.mul.Scalar(key.transpose(-2, -1), factor))
    if mask is not None:
        scores = aten.add.Tensor(scores, mask)
    weights = aten._softmax.default(scores, -1, False)
    # A row that may look at nothing gives zeros.
    is_seen = aten.any.dim(aten.logical_not.default(aten.eq.Scalar(scores, float("-inf"))), -1, True)
    weights = aten.where.self(aten.logical_not.default(is_seen), aten.full_like.default(weights, 0), weights)
    made = mica.matmul(weights, value)
    return aten._to_copy.default(made, dtype=dtype) if dtype in LOW else made
