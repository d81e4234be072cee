"""Operators that are told how many elements to take, where that number is open: no world says how it stands to the size.

That there are so many is relied on, or asserted where only data decide it.
"""

import mica
from mica import _C
from mica._subclasses import open_sizes
from mica._subclasses.open_views import stated
from mica.fx.experimental._expressions import make

__all__ = ["NAMES", "counted", "refuse_offsets"]

NAMES = frozenset(["topk", "kthvalue", "multinomial"])
_OFFSETS = frozenset(["diagonal", "diag", "diag_embed", "tril_indices", "triu_indices"])


def refuse_offsets(name, args, kwargs, env):
    """Raise the error of a number that only data decide where its sign or its size would decide the sizes of the result."""
    if name not in _OFFSETS:
        return
    for value in (*args, *kwargs.values()):
        known = env.worlds.known(value) if type(value) is int else value
        if known is not value and any(each.startswith("u") for each in known.free_symbols):
            env.specialize(known)


def counted(mode, func, name, x, k, dim=-1, *rest, **named):
    """The result of an operator by its name; None where the number is not open."""
    env = mode.shape_env
    count = env.worlds.known(k) if type(k) is int else k
    own = x.__dict__.get("_sizes") or tuple(_C.TensorBase.size(x))
    if isinstance(count, int) or not own or not isinstance(dim, int) or not -len(own) <= dim < len(own):
        return None
    if name == "multinomial":
        return _made(mode, x, (*own[:-1], count), mica.int64)
    dim %= len(own)
    least = 1 if name == "kthvalue" else 0
    if not (stated(env, ">=", count, least) and stated(env, "<=", count, own[dim])):
        return None
    kept = rest[0] if rest else named.get("keepdim", False)
    middle = (count,) if name == "topk" else (1,) if kept else ()
    sizes = (*own[:dim], *middle, *own[dim + 1 :])
    kind = type(func(_C.empty([1] * len(own), dtype=x.dtype, device="meta"), 1))
    return kind((_made(mode, x, sizes, x.dtype), _made(mode, x, sizes, mica.int64)))


def _made(mode, like, sizes, dtype):
    env = mode.shape_env
    sizes = [env.replace(make(size)) for size in sizes]
    sizes = tuple(size.number if size.is_number else size for size in sizes)
    with mica.utils._python_dispatch._disable_current_modes(), _C.DisableTorchFunction():
        meta, sizes, others = open_sizes.of_sizes(sizes, env, dtype)
    return open_sizes.attach(mica._subclasses.fake_tensor._as_fake(meta, mode, like.fake_device), sizes, others)
