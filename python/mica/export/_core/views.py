"""Views by other names, creation and indexing."""

import mica
from mica.export._core.rules import RULES, decomposes, number_like, positions

aten = mica.ops.aten


# ---- views by other names


@decomposes("t")
def _t(x):
    return x.permute(*reversed(range(x.dim())))


@decomposes("transpose.int")
def _transpose(x, a, b):
    order = list(range(x.dim()))
    order[a], order[b] = order[b], order[a]
    return x.permute(order)


@decomposes("_unsafe_view")
def _unsafe_view(x, size):
    return x.view(size)


@decomposes("squeeze.dim")
def _squeeze(x, dim):
    return aten.squeeze.dims(x, [dim])


@decomposes("squeeze")
def _squeeze_all(x):
    return aten.squeeze.dims(x, [i for i, size in enumerate(x.shape) if isinstance(size, int) and size == 1])


@decomposes("detach")
def _detach(x):
    return aten.alias.default(x)


@decomposes("split.Tensor")
def _split(x, size, dim=0):
    total = x.shape[dim]
    if not isinstance(size, int) or not isinstance(total, int) or size == 0:
        return NotImplemented
    return aten.split_with_sizes.default(x, [min(size, total - i) for i in range(0, total, size)] or [0], dim)


@decomposes("unbind.int")
def _unbind(x, dim=0):
    if not isinstance(x.shape[dim], int):
        return NotImplemented
    return tuple(aten.squeeze.dims(aten.slice.Tensor(x, dim, i, i + 1), [dim]) for i in range(x.shape[dim]))


@decomposes("stack")
def _stack(tensors, dim=0):
    dim %= tensors[0].dim() + 1
    sizes = list(tensors[0].shape)
    if dim == 0 and sizes:
        return aten.view.default(aten.cat.default(list(tensors)), [len(tensors), *sizes])
    return aten.cat.default([aten.unsqueeze.default(each, dim) for each in tensors], dim)


@decomposes("rot90")
def _rot90(x, k=1, dims=(0, 1)):
    a, b = (dim % x.dim() for dim in dims)
    if k % 4 in (0, 2):
        return aten.flip.default(x, [a, b]) if k % 4 else aten.clone.default(x)
    order = list(range(x.dim()))
    order[a], order[b] = order[b], order[a]
    if k % 4 == 1:
        return aten.permute.default(aten.flip.default(x, [b]), order)
    return aten.flip.default(aten.permute.default(x, order), [b])


@decomposes("pixel_shuffle")
def _pixel_shuffle(x, factor):
    *outer, channels, height, width = x.shape
    n, few = len(outer), channels // (factor * factor)
    parts = aten.view.default(x, [*outer, few, factor, factor, height, width])
    turned = aten.permute.default(parts, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    dense = aten.clone.default(turned, memory_format=mica.contiguous_format)
    return aten.view.default(dense, [*outer, few, height * factor, width * factor])


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
    RULES[getattr(aten, _name).default] = _filled(_value)
    RULES[getattr(aten, f"new_{_name}").default] = _new(_value)
    RULES[getattr(aten, f"{_name}_like").default] = _like(_value)
RULES[aten.new_full.default] = _new(None)


@decomposes("eye")
def _eye(n, *, dtype=None, layout=None, device=None, pin_memory=None):
    return _eye_of(n, n, dtype=dtype, device=device)


@decomposes("eye.m")
def _eye_of(n, m, *, dtype=None, layout=None, device=None, pin_memory=None):
    dtype = mica.get_default_dtype() if dtype is None else dtype
    rows = aten.arange.start_step(0, n, 1, dtype=mica.int64, device=device)
    columns = aten.arange.start_step(0, m, 1, dtype=mica.int64, device=device)
    return aten._to_copy.default(aten.eq.Tensor(aten.unsqueeze.default(rows, -1), columns), dtype=dtype)


def _beside_diagonal(x):
    columns = aten.unsqueeze.default(positions(x.shape[-1], x), -2)
    return aten.sub.Tensor(columns, aten.unsqueeze.default(positions(x.shape[-2], x), -1))


@decomposes("tril")
def _tril(x, diagonal=0):
    return aten.where.self(aten.le.Scalar(_beside_diagonal(x), diagonal), x, number_like(0, x))


@decomposes("triu")
def _triu(x, diagonal=0):
    return aten.where.self(aten.ge.Scalar(_beside_diagonal(x), diagonal), x, number_like(0, x))


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
        return put(x, _placed(dim % x.dim(), index), number_like(value, x)) if x.dim() else NotImplemented

    return rule


for _ending, _put in (("", aten.index_put.default), ("_", aten.index_put_.default)):
    RULES[getattr(aten, f"index_copy{_ending}").default] = _index_copy(_put)
    RULES[getattr(aten, f"index_add{_ending}").default] = _index_add(_put)
    RULES[getattr(aten, f"index_fill{_ending}").int_Scalar] = _index_fill(_put)


@decomposes("take")
def _take(x, index):
    return aten.index.Tensor(aten.view.default(x, [-1]), [index]) if x.is_contiguous() else NotImplemented
