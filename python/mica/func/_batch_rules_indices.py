"""Rules for indices of each example's own: scattering, gathering, and rows by number.

They are tried after the rules that look at all examples at once, for the cases that those leave.
"""

import mica
from mica import _C
from mica.func._batch_dims import one_dim
from mica.func._batch_rules_composed import composed
from mica.func._batched import RULES, Plain, check_first_is_batched, rule

Tensor = _C.Tensor


def _widened(name):
    """Scattering and gathering where some examples have no dimensions: these get one."""
    before = RULES[name]

    def rule(call):
        tensors = [x for x in (*call.args, *call.kwargs.values()) if isinstance(x, Tensor)]
        empty = any(x.numel() == 0 for x in tensors)
        if not tensors or (all(x.dim() for x in tensors) and not empty):
            return before(call)
        first, index = call.args[0], call.argument(2, "index")
        if not isinstance(index, Tensor):
            return before(call)
        if index.numel() == 0 and call.name != "index_select":
            return Plain(first.new_empty(index.shape) if call.name == "gather" else first.clone())
        if first.dim() > 1:
            return before(call)

        def wide(x):
            return x.unsqueeze(0) if isinstance(x, Tensor) and x.dim() == 0 else x

        if all(x.dim() for x in tensors):
            return before(call)
        kwargs = {key: wide(x) for key, x in call.kwargs.items()}
        result = getattr(mica, call.name)(*map(wide, call.args), **kwargs)
        narrow = index.dim() == 0 if call.name == "gather" else first.dim() == 0
        return Plain(result.squeeze(0) if narrow else result)

    RULES[name] = rule


def _widened_in_place(name):
    before = RULES[name]

    def rule(call):
        first = call.args[0]
        if first.dim() or not call.is_batched(first):
            return before(call)

        def wide(x):
            return x.unsqueeze(0) if isinstance(x, Tensor) and x.dim() == 0 else x

        getattr(first.unsqueeze(0), name)(*map(wide, call.args[1:]), **{k: wide(x) for k, x in call.kwargs.items()})
        return Plain(first)

    RULES[name] = rule


for _name in ("gather", "scatter", "scatter_add", "scatter_reduce", "index_select"):
    _widened(_name)
for _name in ("scatter_", "scatter_add_", "scatter_reduce_"):
    _widened_in_place(_name)


def _rows_of_each(name):
    """index_add, index_copy and index_fill with an index for each example: rows of all examples in one list."""
    before = RULES[name]

    def rule(call):
        index = call.argument(2, "index")
        first, source = call.args[0], call.argument(3, "value" if name == "index_fill" else "source")
        result = before(call)
        if result is not NotImplemented or not isinstance(index, Tensor) or len(call.args) < 3 or index.dim() > 1:
            return result
        if first.dim() == 0 or index.dim() == 0:
            wide = [first.unsqueeze(0) if first.dim() == 0 else first, call.args[1], index.reshape(-1)]
            if source is not None:
                narrow = name != "index_fill" and isinstance(source, Tensor) and source.dim() < wide[0].dim()
                wide.append(source.unsqueeze(call.args[1] % wide[0].dim()) if narrow else source)
            kwargs = {key: x for key, x in call.kwargs.items() if key == "alpha"}
            found = getattr(mica, name)(*wide, **kwargs)
            return Plain(found.squeeze(0) if first.dim() == 0 else found)
        value, at = call.full(first), one_dim(call.args[1], first.dim())
        moved = value.movedim(at, 1)
        size, count = moved.shape[0], moved.shape[1]
        where = call.full(index)
        starts = mica.arange(size, device=where.device).unsqueeze(1) * count
        rows = (where % max(count, 1) + starts).reshape(-1)
        flat = moved.reshape(size * count, *moved.shape[2:])
        kwargs = {key: x for key, x in call.kwargs.items() if key == "alpha"}
        if name == "index_fill":
            if call.is_batched(source):
                number = call.full(source).reshape(size, *[1] * (moved.dim() - 1))
                piece = number.expand(size, where.shape[1], *moved.shape[2:]).reshape(-1, *moved.shape[2:])
                flat = flat.index_copy(0, rows, piece.to(flat.dtype))
            else:
                flat = flat.index_fill(0, rows, source)
        else:
            piece = call.full(source)
            if piece.dim() != value.dim():
                return NotImplemented
            piece = piece.movedim(at, 1)
            piece = piece.reshape(-1, *piece.shape[2:])
            flat = getattr(flat, name)(0, rows, piece, **kwargs)
        return flat.reshape(moved.shape).movedim(1, at)

    RULES[name] = rule


def _rows_in_place(name):
    before = RULES.get(name)

    def rule(call):
        check_first_is_batched(call)
        result = NotImplemented if before is None else before(call)
        if result is not NotImplemented:
            return result
        first = call.args[0]
        first.copy_(getattr(mica, name[:-1])(*call.args, **call.kwargs))
        return Plain(first)

    RULES[name] = rule


for _name in ("index_add", "index_copy", "index_fill"):
    _rows_of_each(_name)
    _rows_in_place(f"{_name}_")


def _parts(index):
    """An index as a list of integer tensors and whole slices; None where it has other parts."""
    parts = [slice(None) if part is None else part for part in index]
    whole = slice(None)
    if not all(
        (isinstance(p, slice) and p == whole) or (isinstance(p, Tensor) and p.dtype in (mica.int64, mica.int32))
        for p in parts
    ):
        return None
    return parts if any(isinstance(part, Tensor) for part in parts) else None


def _places(call, parts):
    """The index of the batch's values; where the indexed dimensions of an example lie; how many there are."""
    tensors = [part for part in parts if isinstance(part, Tensor)]
    rank = max(x.dim() for x in tensors)
    at = [i for i, part in enumerate(parts) if isinstance(part, Tensor)]
    together = at == list(range(at[0], at[-1] + 1))

    def aligned(x):
        value = call.value(x)
        return value.reshape(value.shape[:1] + (1,) * (rank - x.dim()) + value.shape[1:]) if call.is_batched(x) else x

    batch = mica.arange(call.size, device=tensors[0].device).reshape(-1, *[1] * rank)
    index = (batch, *(aligned(part) if isinstance(part, Tensor) else part for part in parts))
    return index, at[0] if together else 0, rank


def _at_indices(call, first, parts):
    index, at, rank = _places(call, parts)
    value = call.full(first)[index]
    if at and rank:
        value = value.movedim(tuple(range(1, 1 + rank)), tuple(range(1 + at, 1 + at + rank)))
    return value


def _getitem_rule():
    before = RULES["__getitem__"]

    def rule(call):
        result = before(call)
        if result is not NotImplemented:
            return result
        first, index = call.args
        parts = _parts(index) if isinstance(index, tuple) and all(p is not None for p in index) else None
        return NotImplemented if parts is None else _at_indices(call, first, parts)

    RULES["__getitem__"] = rule


def _index_put(call):
    first, index, new = call.args[:3]
    accumulate = call.argument(3, "accumulate", False)
    parts = _parts(index)
    if parts is None:
        return NotImplemented
    where, at, rank = _places(call, parts)
    value = call.full(first)
    shape = value[where].shape
    target = list(shape[1:])
    if at and rank:  # as an example has it
        target = target[rank : rank + at] + target[:rank] + target[rank + at :]
    if isinstance(new, Tensor):
        new = call.full(new.expand(target))
        if at and rank:
            new = new.movedim(tuple(range(1 + at, 1 + at + rank)), tuple(range(1, 1 + rank)))
    tensors = [None if isinstance(part, slice) else part for part in where]
    if call.name.endswith("_"):
        check_first_is_batched(call)
        call.value(first).index_put_(tensors, new, accumulate)
        return Plain(first)
    return value.index_put(tensors, new, accumulate)


def _put_rule(name):
    before = RULES.get(name)

    def rule(call):
        result = NotImplemented if before is None else before(call)
        return _index_put(call) if result is NotImplemented else result

    RULES[name] = rule


_getitem_rule()
for _name in ("index_put", "index_put_"):
    _put_rule(_name)


@composed("take_along_dim")
def _take_along_dim(input, indices, dim=None):
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    if input.dim() != indices.dim() or input.dim() == 0:
        return NotImplemented
    dim %= input.dim()
    sizes = [max(a, b) if 0 not in (a, b) else 0 for a, b in zip(input.shape, indices.shape, strict=True)]
    wide, where = list(sizes), list(sizes)
    wide[dim], where[dim] = input.shape[dim], indices.shape[dim]
    return input.expand(wide).gather(dim, indices.expand(where))


@rule("_is_all_true", "_is_any_true")
def _is_true(call):
    """One answer for all examples together, which a program may branch on."""
    value = call.value(call.args[0])
    return Plain(value.all() if call.name == "_is_all_true" else value.any())
