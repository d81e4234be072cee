"""Operators that are told how many elements to take, where that number is open: no world says how it stands to the size.

That there are so many is relied on, or asserted where only data decide it.
"""

import mica
from mica import _C
from mica._subclasses import open_sizes
from mica._subclasses.open_views import stated
from mica.fx.experimental._expressions import make
from mica.fx.experimental._facts_of_data import of_data

__all__ = ["NAMES", "counted", "refuse_offsets"]

NAMES = frozenset(["topk", "kthvalue", "multinomial"])
_OFFSETS = frozenset(["diagonal", "diag", "diag_embed", "tril_indices", "triu_indices"])


def refuse_offsets(name, args, kwargs, env):
    """Raise the error of a number that only data decide where its sign or its size would decide the sizes of the result."""
    if name not in _OFFSETS:
        return
    for value in (*args, *kwargs.values()):
        known = env.worlds.known(value) if type(value) is int else value
        if known is not value and of_data(known):
            env.specialize(known)


def counted(mode, func, name, x, k, dim=-1, *rest, **named):
    """The result of an operator by its name; None where the number is not open."""
    env = mode.shape_env
    count = env.worlds.known(k) if type(k) is int else k
    own = open_sizes.own_sizes(x)
    if isinstance(count, int) or not own or not isinstance(dim, int) or not -len(own) <= dim < len(own):
        return None
    if name == "multinomial":
        return open_sizes.sized(mode, x, map(env.replace, map(make, (*own[:-1], count))), mica.int64)
    dim %= len(own)
    least = 1 if name == "kthvalue" else 0
    if not (stated(env, ">=", count, least) and stated(env, "<=", count, own[dim])):
        return None
    kept = rest[0] if rest else named.get("keepdim", False)
    middle = (count,) if name == "topk" else (1,) if kept else ()
    sizes = [env.replace(make(size)) for size in (*own[:dim], *middle, *own[dim + 1 :])]
    kind = type(func(_C.empty([1] * len(own), dtype=x.dtype, device="meta"), 1))
    return kind(open_sizes.sized(mode, x, sizes, dtype) for dtype in (x.dtype, mica.int64))
