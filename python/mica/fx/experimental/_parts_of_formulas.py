"""Functions whose derivatives the engine computes in one piece, in parts that a graph can show: distances, products over
indices, quantiles, margins.

Each entry of PARTS takes the arguments of a call and returns a function that computes it, or None where the call is
left as it is: where the engine has an error to raise, for one.
"""

import math

import mica
from mica import _C
from mica.autograd import Function

__all__ = ["PARTS"]


def _addr(name, input, vec1, vec2, *, beta=1, alpha=1):
    if vec1.dim() != 1 or vec2.dim() != 1:
        return None
    return lambda: _scaled(input, beta) + _scaled(mica.outer(vec1, vec2), alpha)


def _addbmm(name, input, batch1, batch2, *, beta=1, alpha=1):
    if batch1.dim() != 3 or batch2.dim() != 3:
        return None
    return lambda: _scaled(input, beta) + _scaled(mica.bmm(batch1, batch2).sum(0), alpha)


def _scaled(x, factor):
    return x if factor == 1 else x * factor


def _cross(name, input, other, dim=None, **options):
    if name == "linalg_cross":
        dim = -1 if dim is None else dim
    if dim is None or options or input.dim() != other.dim() or not input.dim():
        return None

    def parts():
        a, b = mica.broadcast_tensors(input, other)
        (x, y, z), (u, v, w) = a.unbind(dim), b.unbind(dim)
        return mica.stack([y * w - z * v, z * u - x * w, x * v - y * u], dim)

    return parts if _size(input, dim) == 3 == _size(other, dim) else None


def _size(x, dim):
    return x.shape[dim] if -x.dim() <= dim < x.dim() else None


def _combinations(name, input, r=2, with_replacement=False):
    if input.dim() != 1 or r < 1:
        return None

    def parts():
        import itertools

        choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
        places = [place for chosen in choose(range(input.shape[0]), r) for place in chosen]
        index = mica.tensor(places, dtype=mica.int64, device=input.device)
        return input.index_select(0, index).view(-1, r)

    return parts


def _mvlgamma(name, input, p):
    if p < 1 or not input.dtype.is_floating_point:
        return None

    def parts():
        steps = mica.arange(0, -p, -1, dtype=input.dtype, device=input.device) * 0.5
        return mica.lgamma(input.unsqueeze(-1) + steps).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)

    return parts


# ---- distances


def _cdist(name, x1, x2, p=2.0, compute_mode=None):
    fits = min(x1.dim(), x2.dim()) >= 2 and x1.shape[-1] == x2.shape[-1] != 0 and x1.dtype == x2.dtype
    if p == 0 or not fits:
        return None
    return lambda: mica.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, dim=-1)


def _pdist(name, input, p=2.0):
    if p == 0 or input.dim() != 2 or input.shape[0] < 2 or input.shape[1] == 0:
        return None

    def parts():
        first, second = mica.triu_indices(input.shape[0], input.shape[0], 1, device=input.device).unbind(0)
        return mica.linalg.vector_norm(input.index_select(0, first) - input.index_select(0, second), p, dim=-1)

    return parts


def _affine_grid(name, theta, size, align_corners=None):
    spatial = len(size) - 2
    if spatial not in (2, 3) or theta.dim() != 3 or tuple(theta.shape[1:]) != (spatial, spatial + 1):
        return None

    def parts():
        axes = []
        for i, n in enumerate(reversed(size[2:])):
            line = mica.linspace(-1, 1, n, dtype=theta.dtype, device=theta.device) if n > 1 else theta.new_zeros(n)
            line = line if align_corners else line * ((n - 1) / n)
            axes.append(line.view([-1 if d == spatial - 1 - i else 1 for d in range(spatial)]).expand(size[2:]))
        places = mica.stack([*axes, mica.ones_like(axes[0])], -1).view(1, -1, spatial + 1)
        grid = places.expand(size[0], -1, -1).bmm(theta.transpose(1, 2))
        return grid.view(size[0], *size[2:], spatial)

    return parts


# ---- reductions over indices


class _Reduced(Function):
    """scatter_reduce by products and extremes, with its gradient in operators."""

    @staticmethod
    def forward(x, index, src, dim, reduce, include_self):
        return x.scatter_reduce(dim, index, src, reduce, include_self=include_self)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, index, src, ctx.dim, ctx.reduce, ctx.include_self = inputs
        ctx.save_for_backward(x, index, src, output)

    @staticmethod
    def backward(ctx, grad):
        formula = _of_product if ctx.reduce == "prod" else _of_extreme
        x, index, src, result = ctx.saved_tensors
        to_x, to_src = formula(grad, x, index, src, result, ctx.dim, ctx.include_self)
        if not ctx.include_self:  # what is not written keeps its value
            to_x = grad.scatter(ctx.dim, index, 0)
        return to_x, None, to_src, None, None, None


def _of_extreme(grad, x, index, src, result, dim, include_self):
    """Those that are the extreme share its gradient."""
    own = (x == result).to(grad.dtype) if include_self else mica.zeros_like(grad)
    theirs = (src == result.gather(dim, index)).to(grad.dtype)
    share = grad / own.scatter_add(dim, index, theirs).clamp_min(1)
    return own * share, theirs * share.gather(dim, index)


def _of_product(grad, x, index, src, result, dim, include_self):
    """The product of the others: of a single zero, that of all that are not zero."""
    x = x if include_self else mica.ones_like(x)
    full_x, full_src = (mica.where(each == 0, mica.ones_like(each), each) for each in (x, src))
    product = full_x.scatter_reduce(dim, index, full_src, "prod")
    zeros = (x == 0).to(grad.dtype).scatter_add(dim, index, (src == 0).to(grad.dtype))

    def without(each, whole, product, count):
        others = mica.where(each == 0, product, product / whole)
        return others * (count == (each == 0).to(grad.dtype))

    to_x = grad * without(x, full_x, product, zeros)
    to_src = without(src, full_src, product.gather(dim, index), zeros.gather(dim, index))
    return to_x, grad.gather(dim, index) * to_src


def _scatter_reduce(name, input, dim, index, src, reduce, *, include_self=True):
    is_plain = isinstance(src, _C.TensorBase) and src.dtype == input.dtype and input.dim() == index.dim() == src.dim()
    if reduce not in ("prod", "amax", "amin") or not is_plain:
        return None
    if any(read > there for read, there in zip(index.shape, src.shape, strict=True)):
        return None

    def parts():  # what the index does not reach of the source is not read
        read = src if src.shape == index.shape else src[tuple(slice(0, n) for n in index.shape)]
        return _Reduced.apply(input, index, read, dim, reduce, include_self)

    return parts


def _index_reduce(name, input, dim, index, source, reduce, *, include_self=True):
    count = 1 if source.dim() == 0 else _size(source, dim)
    fits = input.dim() == source.dim() and index.dim() <= 1 and index.numel() == count
    if reduce not in ("prod", "amax", "amin") or not fits or source.dtype != input.dtype:
        return None

    def parts():
        shape = [1] * source.dim()
        if shape:
            shape[dim] = -1
        return _Reduced.apply(input, index.long().view(shape).expand_as(source), source, dim, reduce, include_self)

    return parts


# ---- quantiles, margins


def _quantile(name, input, q, dim=None, keepdim=False, *, interpolation="linear"):
    is_number = not isinstance(q, _C.TensorBase)
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest") or not input.numel():
        return None
    if (is_number and not 0 <= q <= 1) or not input.dtype.is_floating_point or (not is_number and q.dim() > 1):
        return None

    def parts():
        at = mica.tensor(q, dtype=input.dtype, device=input.device) if is_number else q
        x = input.flatten() if dim is None or not input.dim() else input.movedim(dim, -1)
        x = x.sort(dim=-1)[0]
        missing = x.isnan()
        if name == "nanquantile":  # NaN comes last
            last = (~missing).sum(-1, keepdim=True).to(x.dtype) - 1
            place = (at.reshape(-1) * last).clamp_min(0)
        else:
            place = mica.where(missing.any(-1, keepdim=True), x.shape[-1] - 1, at.reshape(-1) * (x.shape[-1] - 1))
        if interpolation in ("lower", "higher", "nearest"):
            whole = {"lower": mica.floor, "higher": mica.ceil, "nearest": mica.round}[interpolation](place)
            made = x.gather(-1, whole.long())
        else:
            below = place.floor()
            weight = mica.full_like(place, 0.5) if interpolation == "midpoint" else place - below
            made = mica.lerp(x.gather(-1, below.long()), x.gather(-1, place.ceil().long()), weight)
        return _shaped(made, input.dim(), dim, keepdim, at.dim())

    return parts


def _shaped(made, count, dim, keepdim, of_list):
    """The results for each of the quantiles, which are the last dimension, as quantile() returns them."""
    if keepdim and dim is None:
        made = made.reshape([1] * count + [made.shape[-1]])
    elif keepdim and count:
        made = made.unsqueeze(dim if dim >= 0 else dim + count)
    return made.movedim(-1, 0) if of_list else made.squeeze(-1)


def _multilabel_margin(name, input, target, size_average=None, reduce=None, reduction="mean"):
    fits = input.dim() in (1, 2) and input.shape == target.shape and input.numel()
    if not fits or size_average is not None or reduce is not None or reduction not in ("none", "mean", "sum"):
        return None

    def parts():
        x, labels = (input, target) if input.dim() == 2 else (input.unsqueeze(0), target.unsqueeze(0))
        given = (labels >= 0).to(x.dtype).cumprod(1)  # up to the first -1
        labels = labels.clamp_min(0)
        is_label = mica.zeros_like(given).scatter_add(1, labels, given) > 0
        margins = (1 - x.gather(1, labels).unsqueeze(2) + x.unsqueeze(1)).relu()
        counted = given.unsqueeze(2) * (~is_label).to(x.dtype).unsqueeze(1)
        loss = (margins * counted).sum((1, 2)) / x.shape[1]
        if reduction != "none":
            return loss.mean() if reduction == "mean" else loss.sum()
        return loss if input.dim() == 2 else loss.squeeze(0)

    return parts


PARTS = {
    "addr": _addr, "addbmm": _addbmm, "cross": _cross, "linalg_cross": _cross, "combinations": _combinations,
    "mvlgamma": _mvlgamma, "cdist": _cdist, "pdist": _pdist, "affine_grid": _affine_grid,
    "scatter_reduce": _scatter_reduce, "index_reduce": _index_reduce, "quantile": _quantile, "nanquantile": _quantile,
    "multilabel_margin_loss": _multilabel_margin,
}  # fmt: skip
