"""Pieces of a fake tensor along a size that is open: chunk, split and their kin, as slices between open places.

The engine would compute the places from the numbers of one world, and nobody could tell what they follow from.
Slices whose places only data decide are computed here: no number of a world lies within a size that is fixed.
"""

import mica
from mica import _C
from mica._subclasses import open_sizes
from mica.fx.experimental._facts_of_data import of_data

__all__ = ["NAMES", "pieces", "rely_on_places", "selected", "sliced"]

_PLACED = frozenset(["narrow", "__getitem__"])
NAMES = frozenset(
    ["chunk", "unsafe_chunk", "split", "unsafe_split", "split_with_sizes", "tensor_split", "glu", *_PLACED]
)
_ARGUMENTS = {"chunk": "chunks", "unsafe_chunk": "chunks", "split": "split_size", "unsafe_split": "split_size",
              "split_with_sizes": "split_sizes", "tensor_split": "indices_or_sections"}  # fmt: skip


def pieces(name, args, kwargs, env):
    """The result of a call by its name, or None where it does not cut an open size."""
    if name in _PLACED:
        return _placed(name, env, *args, **kwargs) if env.has_data() else None
    names = ("input", "dim") if name == "glu" else ("input", _ARGUMENTS[name], "dim")
    given = dict(zip(names, args, strict=False)) | {_renamed(key, name): value for key, value in kwargs.items()}
    x, dim = given.get("input"), given.get("dim", -1 if name == "glu" else 0)
    if not isinstance(x, mica._subclasses.FakeTensor):
        return None
    sizes = open_sizes.own_sizes(x)
    if not isinstance(dim, int) or not -len(sizes) <= dim < len(sizes) or not given.keys() <= set(names):
        return None
    dim %= len(sizes)
    if name == "glu":
        return None if isinstance(sizes[dim], int) else _glu(x, dim, env.create_symintnode(sizes[dim]), env)
    how = _opened(given.get(names[1]), env)
    if isinstance(sizes[dim], int) and not _has_open(how):
        return None
    size = sizes[dim] if isinstance(sizes[dim], int) else env.create_symintnode(sizes[dim])
    lengths = _lengths(name, size, how, env)
    return None if lengths is None else _cut(x, dim, lengths, env)


def _renamed(key, name):
    if key in ("self", "input"):
        return "input"
    aliases = ("split_size_or_sections", "split_size", "split_sizes", "sections", "indices")
    return _ARGUMENTS[name] if key in aliases and name != "glu" else key


def _opened(value, env):
    """Numbers of the first world as the sizes that they stand for."""
    if isinstance(value, (list, tuple)):
        return [_opened(each, env) for each in value]
    if type(value) is not int or isinstance(known := env.worlds.known(value), int):
        return value
    return env.create_symintnode(known)


def _has_open(value):
    return any(isinstance(each, mica.SymInt) for each in (value if isinstance(value, (list, tuple)) else [value]))


def _lengths(name, size, how, env):
    """The lengths of the pieces; None where the engine reports what is wrong with the arguments."""
    if isinstance(how, (list, tuple)):
        if name == "tensor_split" or not all(isinstance(each, (int, mica.SymInt)) for each in how):
            return None
        return list(how) if _stated(sum(how) == size, env) else None
    if not isinstance(how, (int, mica.SymInt)) or not how > 0:
        return None
    if name == "tensor_split":
        how = int(how)
        longer = int(size % how)  # how many are longer by one
        return [size // how + (i < longer) for i in range(how)]
    if name in ("split", "unsafe_split"):
        count = int((size + how - 1) // how)
        return [how] * (count - 1) + [size - how * (count - 1)]
    how = int(how)
    length = (size + how - 1) // how
    # From how * (how - 1) + 1 elements on no piece is empty. For two pieces that is from two elements on, and there are
    # at least two.
    always = how == 2 or (isinstance(size, mica.SymInt) and _least(size, env) > how * (how - 1))
    count = how if always else int((size + length - 1) // length)
    return [length] * (count - 1) + [size - length * (count - 1)]


def _stated(truth, env):
    """Whether something holds, which is believed and asserted if only data decide it."""
    if not isinstance(truth, mica.SymBool):
        return truth
    if not of_data(truth.node._expr):
        return bool(truth)
    if not _is_known(truth):
        env.assume(truth.node._expr)
    return True


def _least(size, env):
    low = env.bound_sympy(env.replace(size.node._expr)).lower
    return 0 if low is None else low


def _cut(x, dim, lengths, env):
    made, start = [], 0
    for length in lengths:
        end = start + length
        if _data(length, env) is not None:  # it lies within, since the lengths are those of all of them
            _stated(length >= 0, env)
            _stated(end <= _size(x, dim, env), env)
        made.append(mica.ops.aten.slice.Tensor(x, dim, start, end))
        start = end
    return tuple(made)


def _glu(x, dim, size, env):
    if size % 2 != 0:
        return None
    first, second = _cut(x, dim, [size // 2, size // 2], env)
    return first * mica.sigmoid(second)


# ---- slices at places that only data decide


def _data(value, env):
    """The expression of a number that only data decide; None of others."""
    if isinstance(value, mica.SymInt):
        expr = env.replace(value.node._expr)
    elif type(value) is int and not isinstance(known := env.worlds.known(value), int):
        expr = env.replace(known)
    else:
        return None
    return expr if of_data(expr) else None


def _placed(name, env, x, *args, **kwargs):
    if name == "__getitem__":
        return _subscripted(x, args[0], env)
    dim, start, length = _given(("dim", "start", "length"), args, kwargs, env)
    if not isinstance(start, (int, mica.SymInt)) or all(_data(each, env) is None for each in (start, length)):
        return None
    return _within(x, dim, start, length, env)


def _within(x, dim, start, length, env):
    """The slice at a place that has to lie within: that is asserted, and relied on."""
    for truth in (start >= 0, length >= 0, start + length <= _size(x, dim, env)):
        _stated(truth, env)
    return mica.ops.aten.slice.Tensor(x, dim, start, start + length)


def _size(x, dim, env):
    size = open_sizes.own_sizes(x)[dim]
    return size if isinstance(size, int) else env.create_symintnode(size)


def _given(names, args, kwargs, env):
    found = dict(zip(names, args, strict=False)) | kwargs
    return [_opened(found.get(name), env) for name in names]


def _subscripted(x, index, env):
    """x[u] and the like, step by step; None where no index is one of data."""
    places = index if isinstance(index, tuple) else (index,)
    if not any(_data(each, env) is not None for each in places if not isinstance(each, slice)):
        return None
    from mica.export._targets import index_steps

    for step, rest in index_steps(x, index) or ():
        x = getattr(x, step)(*rest) if step == "select" else getattr(mica.ops.aten, step)(x, *rest)
    return x


def sliced(mode, x, dim=0, start=None, end=None, step=1, by_guards=False):
    """The operator slice between places that only data decide: None of other places.

    Its size is their distance where both are known to lie within, or one that data decide. `by_guards` is for places that
    follow from open sizes: the example says how they lie, which is relied on.
    """
    env = mode.shape_env
    start, end = _opened(start, env), _opened(end, env)
    is_of_data = any(_data(each, env) is not None for each in (start, end, _size(x, dim, env)))
    if step not in (None, 1) or is_of_data is by_guards:
        return None
    sizes = list(open_sizes.own_sizes(x))
    size, start, dim = _size(x, dim, env), 0 if start is None else start, dim % len(sizes)
    end = size if end is None or (type(end) is int and end >= 2**62) else end
    if by_guards:
        start, end = (each + size if each < 0 else each for each in (start, end))
        start, end = (each if each <= size else size for each in (start, end))  # min would be open, too
        length = end - start if start <= end else 0
    else:
        length = end - start if all(map(_is_known, (start >= 0, end <= size, start <= end))) else None
    if length is None or (isinstance(length, mica.SymInt) and not _is_positive(length, env)):
        span = end - start if type(start) is type(end) is int and 0 <= start <= end else None
        length = env.create_unbacked_symint(least=0, greatest=size if isinstance(size, int) else span)
    sizes[dim] = length if isinstance(length, int) else env.replace(length.node._expr)
    made = []
    with mica.utils._python_dispatch._disable_current_modes(), _C.DisableTorchFunction():
        for world in range(len(env.worlds)):
            whole = x if world == 0 else x.__dict__["_others"][world - 1] if "_others" in x.__dict__ else x
            numbers = [env.worlds.number(each, world) for each in sizes]
            made.append(_C.empty_strided(numbers, _C.TensorBase.stride(whole), dtype=x.dtype, device="meta"))
    fake = mica._subclasses.fake_tensor._as_fake(made[0], mode, x.fake_device)
    return (
        fake
        if isinstance(length, int) and "_sizes" not in x.__dict__
        else open_sizes.attach(fake, tuple(sizes), made[1:])
    )


def selected(mode, x, dim, index):
    """The operator select at a place that only data decide: None of other places. Where it is, the sizes do not say."""
    if _data(_opened(index, mode.shape_env), mode.shape_env) is None:
        return None
    return mode.__torch_dispatch__(mica.ops.aten.select.int, (), (x, dim, 0))


def rely_on_places(env, x, dim=0, start=None, end=None, step=1):
    """Rely on it that the fixed places of a slice lie within an open size: the numbers of all worlds are large, and would hide
    that x[:3] of two elements has two."""
    if "_sizes" not in x.__dict__ or not isinstance(dim, int) or not -x.dim() <= dim < x.dim():
        return
    size = _size(x, dim, env)
    if not isinstance(size, mica.SymInt):
        return
    for place in (start, end):
        if type(place) is int and 0 < abs(place) < 4096 and isinstance(env.worlds.known(place), int):
            bool(size >= abs(place))  # the answer, that of the example, becomes a guard


def _is_positive(length, env):
    """Whether a length is not negative in every world: 5 - u0 is negative where u0 is a prime of five digits."""
    expr = env.replace(length.node._expr)
    return all(env.worlds.number(expr, world) >= 0 for world in range(len(env.worlds)))


def _is_known(truth):
    if not isinstance(truth, mica.SymBool):
        return bool(truth)
    relation, env = truth.node._expr, truth.node.shape_env
    return relation.decided(env) is True or env.is_stated(relation)
