"""Pieces of a fake tensor along a size that is open: chunk, split and their kin, as slices between open places.

The engine would compute the places from the numbers of one world, and nobody could tell what they follow from.
"""

import mica

__all__ = ["NAMES", "pieces"]

NAMES = frozenset(["chunk", "unsafe_chunk", "split", "unsafe_split", "split_with_sizes", "tensor_split", "glu"])
_ARGUMENTS = {"chunk": "chunks", "unsafe_chunk": "chunks", "split": "split_size", "unsafe_split": "split_size",
              "split_with_sizes": "split_sizes", "tensor_split": "indices_or_sections"}  # fmt: skip


def pieces(name, args, kwargs, env):
    """The result of a call by its name, or None where it does not cut an open size."""
    names = ("input", "dim") if name == "glu" else ("input", _ARGUMENTS[name], "dim")
    given = dict(zip(names, args, strict=False)) | {_renamed(key, name): value for key, value in kwargs.items()}
    x, dim = given.get("input"), given.get("dim", -1 if name == "glu" else 0)
    sizes = getattr(x, "__dict__", {}).get("_sizes", ())
    if not isinstance(dim, int) or not -len(sizes) <= dim < len(sizes) or not given.keys() <= set(names):
        return None
    dim %= len(sizes)
    if name == "glu":
        return None if isinstance(sizes[dim], int) else _glu(x, dim, env.create_symintnode(sizes[dim]))
    how = _opened(given.get(names[1]), env)
    if isinstance(sizes[dim], int) and not _has_open(how):
        return None
    size = sizes[dim] if isinstance(sizes[dim], int) else env.create_symintnode(sizes[dim])
    lengths = _lengths(name, size, how, env)
    return None if lengths is None else _cut(x, dim, lengths)


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
    """How long the pieces are; None where the engine says what is wrong with the arguments."""
    if isinstance(how, (list, tuple)):
        if name == "tensor_split" or not all(isinstance(each, (int, mica.SymInt)) for each in how):
            return None
        return list(how) if sum(how) == size else None
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
    # From how * (how - 1) + 1 elements on no piece is empty; for two pieces from two elements on, which there are.
    always = how == 2 or (isinstance(size, mica.SymInt) and _least(size, env) > how * (how - 1))
    count = how if always else int((size + length - 1) // length)
    return [length] * (count - 1) + [size - length * (count - 1)]


def _least(size, env):
    low = env.bound_sympy(env.replace(size.node._expr)).lower
    return 0 if low is None else low


def _cut(x, dim, lengths):
    made, start = [], 0
    for length in lengths:
        made.append(mica.ops.aten.slice.Tensor(x, dim, start, start + length))
        start = start + length
    return tuple(made)


def _glu(x, dim, size):
    if size % 2 != 0:
        return None
    first, second = _cut(x, dim, [size // 2, size // 2])
    return first * mica.sigmoid(second)
