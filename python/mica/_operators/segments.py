"""segment_reduce: the sum, mean, product, maximum or minimum of neighbouring pieces of a dimension."""

import math

import mica
from mica import _C
from mica._functions.wrapping import asks_as_called

_IDENTITIES = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_NAMES = {"amax": "max", "amin": "min"}


def _check(data, lengths, offsets, axis, unsafe):
    """Raise what torch raises about the pieces."""
    given, name = (lengths, "lengths") if offsets is None else (offsets, "offsets")
    if given.dim() > data.dim():
        raise RuntimeError(f"Expected data.dim() >= {name}_value.dim() to be true, but got false.")
    if axis != given.dim() - 1:
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of {name} but got {axis}.")
    if given.shape[:-1] != data.shape[:axis]:
        raise RuntimeError(
            f"segment_reduce(): Expected {name} to have the sizes {tuple(data.shape[:axis])} of the data before the "
            f"axis, but got {tuple(given.shape[:-1])}"
        )
    if given.dtype not in (_C.int32, _C.int64):
        raise NotImplementedError(f'"segment_reduce" not implemented for {name} of {given.dtype}')
    if not data.is_floating_point():
        raise NotImplementedError(f'"segment_reduce" not implemented for {data.dtype}')
    if unsafe or offsets is not None or given.is_meta:
        return
    if lengths.numel() and lengths.min() < 0:
        raise RuntimeError("lengths contains negative value!")
    if (lengths.sum(-1) != data.shape[axis]).any():
        raise RuntimeError(
            "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
        )


class _Pieces:
    """Which piece each row of the data belongs to; rows of no piece belong to one more, which is left out."""

    def __init__(self, data, lengths, offsets, axis):
        self.size, self.inner = data.shape[axis], math.prod(data.shape[axis + 1 :])
        batches = math.prod(data.shape[:axis])
        if offsets is None:
            offsets = mica.nn.functional.pad(lengths.to(_C.int64).cumsum(-1), (1, 0))
        bounds = offsets.to(_C.int64).reshape(batches, offsets.shape[-1])
        self.pieces = max(bounds.shape[-1] - 1, 0)
        self.count = batches * self.pieces
        places = _C.arange(self.size, device=data.device).expand(batches, self.size)
        at = _C.searchsorted(bounds.contiguous(), places.contiguous(), right=True) - 1
        first = _C.arange(batches, device=data.device).unsqueeze(1) * self.pieces
        self.owner = _C.where((at >= 0) & (at < self.pieces), at + first, self.count).reshape(-1)
        self.lengths = bounds.diff(dim=-1).clamp_(min=0).reshape(-1, 1)
        self.shape = (*data.shape[:axis], self.pieces, *data.shape[axis + 1 :])

    def rows(self, data):
        return data.reshape(len(self.owner), self.inner)

    def to_rows(self, pieces):
        """The values of each row's piece; rows without a piece get zeros."""
        table = _C.cat([pieces.reshape(self.count, self.inner), pieces.new_zeros(1, self.inner)])
        return table[self.owner]

    def reduced(self, rows, reduce, start):
        table = rows.new_full((self.count + 1, self.inner), start)
        if reduce in ("sum", "mean"):
            table = table.index_add_(0, self.owner, rows)
        else:
            table = table.index_reduce_(0, self.owner, rows, {"max": "amax", "min": "amin"}.get(reduce, reduce))
        return table[: self.count]


def _product_of_others(pieces, rows, start):
    """For rows that are zero or NaN: the product of the others of their piece, which no division gives."""
    zero, broken = rows == 0, rows.isnan()
    plain = pieces.to_rows(pieces.reduced(_C.where(zero | broken, 1.0, rows), "prod", start))
    zeros, breaks = (pieces.to_rows(pieces.reduced(found.to(rows.dtype), "sum", 0)) for found in (zero, broken))
    factor = _C.where(zeros > zero.to(rows.dtype), 0.0, 1.0)
    return plain * _C.where(breaks > broken.to(rows.dtype), math.nan, factor)


class _SegmentReduce(mica.autograd.Function):
    @staticmethod
    def forward(ctx, data, pieces, reduce, initial):
        start = _IDENTITIES[reduce] if initial is None else initial
        result = pieces.reduced(pieces.rows(data), reduce, start)
        if reduce == "mean":
            averaged = result / pieces.lengths.to(data.dtype)
            result = averaged if initial is None else _C.where(pieces.lengths == 0, result, averaged)
        result = result.reshape(pieces.shape)
        ctx.pieces, ctx.reduce, ctx.start = pieces, reduce, start
        ctx.save_for_backward(data, result)
        return result

    @staticmethod
    @mica.autograd.function.once_differentiable
    def backward(ctx, grad):
        data, result = ctx.saved_tensors
        pieces, reduce = ctx.pieces, ctx.reduce
        given, rows = pieces.to_rows(grad.contiguous()), pieces.rows(data)
        if reduce == "mean":
            given = given / pieces.to_rows(pieces.lengths.to(grad.dtype).expand(pieces.count, pieces.inner))
        elif reduce == "prod":
            special = (rows == 0) | rows.isnan()
            divided = given * pieces.to_rows(result) / rows
            given = _C.where(special, given * _product_of_others(pieces, rows, ctx.start), divided)
        elif reduce != "sum":
            chosen = (rows == pieces.to_rows(result)) | rows.isnan()
            ties = pieces.to_rows(pieces.reduced(chosen.to(rows.dtype), "sum", 0))
            # torch shares only positive gradients among equals; a negative one goes to each of them in full.
            shared = _C.where((ties > 1) & (given > 0), given / ties, given)
            given = _C.where(chosen, shared, 0.0)
        inside = (pieces.owner < pieces.count).unsqueeze(1)
        return _C.where(inside, given, 0.0).reshape(data.shape), None, None, None


@asks_as_called
def segment_reduce(
    data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None, out=None
):
    """The sum, mean, product, maximum or minimum of pieces of a dimension, whose lengths or offsets are given."""
    name = _NAMES.get(reduce, reduce)
    if name not in _IDENTITIES:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if not -data.dim() <= axis < data.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-data.dim()}, {data.dim() - 1}], but got {axis})"
        )
    axis %= data.dim()
    _check(data, lengths, offsets, axis, unsafe)
    result = _SegmentReduce.apply(data, _Pieces(data, lengths, offsets, axis), name, initial)
    if out is None:
        return result
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)
