"""Fake results of operators whose sizes or numbers only data decide: with a ShapeEnv, symbols without an example.

What is asked of the same tensor again, unchanged, is the same symbol: x[mask] and y[mask] have as many rows.
"""

import math

import mica
from mica import _C
from mica._subclasses import open_sizes
from mica.fx.experimental._expressions import make

__all__ = ["NAMES", "number", "result"]

NAMES = frozenset(
    [
        "_unique2", "argwhere", "bincount", "masked_select", "nonzero", "unique", "unique_consecutive", "unique_dim",
        "unique_dim_consecutive",
    ]
)  # fmt: skip
_INDEXING = frozenset(["index", "_unsafe_index"])
_MASKS = (mica.bool, mica.uint8)
_BYTES = {mica.uint8: (0, 255), mica.int8: (-128, 127)}


def _remembered(fake, what, make):
    """The facts that were found about a tensor, unless it has changed since."""
    known = fake.__dict__.setdefault("_of_data", {})
    version = None if fake.is_inference() else _C.TensorBase._version.__get__(fake)  # those do not count
    if what not in known or known[what][0] != version:
        known[what] = (version, make())
    return known[what][1]


def number(fake, env):
    """The one number of a tensor, or its truth; None of complex numbers, which have no open form."""
    if fake.dtype.is_complex:
        return None
    if fake.dtype is mica.bool:  # its number is 0 or 1
        return _remembered(fake, "item", lambda: env.create_unbacked_symint(least=0, greatest=1)) == 1
    if fake.dtype.is_floating_point:
        return _remembered(fake, "item", env.create_unbacked_symfloat)
    low, high = _BYTES.get(fake.dtype, (None, None))
    return _remembered(fake, "item", lambda: env.create_unbacked_symint(least=low, greatest=high))


def _count(fake, env, what="nonzero", least=0):
    """How many elements of a tensor are chosen."""
    total = math.prod(map(make, open_sizes.own_sizes(fake)), start=make(1)).bounds(env._ranges)[1]

    def made():
        return env.create_unbacked_symint(least=least, greatest=total).node._expr

    return _remembered(fake, what, made)


def result(mode, func, name, args, kwargs):
    """The result of an operator whose sizes only data decide; None of others."""
    env = mode.shape_env
    if name in _INDEXING:
        if not any(index is not None and index.dtype in _MASKS for index in args[1]):
            return None
        if env is None or env.refuses_data:
            raise mica._subclasses.fake_tensor.DynamicOutputShapeException(func)
        places, count = _rows_of_masks(mode, args[1])
        return _by_own_name(mode.__torch_dispatch__(func, (), (args[0], places)), count, env)
    if name not in NAMES and func is not mica.ops.aten.repeat_interleave.Tensor:
        return None
    if func is mica.ops.aten.repeat_interleave.Tensor and (total := kwargs.get("output_size")) is not None:
        return _of_size(mode, args[0], total)  # the program has said it
    if env is None or env.refuses_data or name not in _RULES:
        raise mica._subclasses.fake_tensor.DynamicOutputShapeException(func)
    return _RULES[name](mode, env, *args, **kwargs)


def _of_size(mode, like, size):
    """A fake list like another one, of a size that is known, which may be open."""
    if mode.shape_env is not None:
        return open_sizes.sized(mode, like, (mode.shape_env.worlds.known(size),), like.dtype)
    with mica.utils._python_dispatch._disable_current_modes(), _C.DisableTorchFunction():
        meta = _C.empty(size, dtype=like.dtype, device="meta")
    return mica._subclasses.fake_tensor._as_fake(meta, mode, like.fake_device)


def _made(mode, like, sizes, dtype):
    for size in sizes:
        mode.shape_env.size_like |= set() if isinstance(size, int) else size.free_symbols
    fake = open_sizes.sized(mode, like, sizes, dtype)
    if mica.is_grad_enabled() and like.requires_grad and dtype.is_floating_point:
        fake.requires_grad_()
    return fake


def _rows_of_masks(mode, indices):
    """(indices with lists of places for masks, how many places that are). Lists that stand side by side are of one length,
    or the call is an error."""
    masks = [index for index in indices if index is not None and index.dtype in _MASKS]
    others = [index for index in indices if index is not None and index.dtype not in _MASKS and index.dim()]
    length = next((size for index in others if (size := open_sizes.own_sizes(index)[-1]) != 1), None)
    count, made = length, []
    for index in indices:
        if index is None or index.dtype not in _MASKS:
            made.append(index)
        else:
            count = _count(masks[0], mode.shape_env) if count is None else count
            made += [_made(mode, index, (count,), mica.int64) for _ in range(index.dim())]
    return made, count


def _by_own_name(fake, count, env):
    """A result with the symbol of the number that it is made of, where that is known to be something else: by the result the
    graph has that number, and asserts what it is."""
    if isinstance(count, int) or not (count.is_symbol and next(iter(count.free_symbols)) in env.to_assert):
        return fake
    known, sizes = env.replace(count), open_sizes.own_sizes(fake)
    return open_sizes.attach(
        fake,
        tuple(count if known == size else size for size in sizes),
        fake.__dict__.get("_others") or [_C.TensorBase.detach(fake)] * (len(env.worlds) - 1),
    )


def _nonzero(mode, env, x):
    return _made(mode, x, (_count(x, env), x.dim()), mica.int64)


def _masked_select(mode, env, x, mask):
    return _made(mode, x, (_count(mask, env),), x.dtype)


def _unique(mode, env, x, sorted=True, return_inverse=False, return_counts=False):
    count = _count(x, env, "unique", least=1 if _C.TensorBase.numel(x) else 0)
    values = _made(mode, x, (count,), x.dtype)
    inverse = _made(mode, x, open_sizes.own_sizes(x) if return_inverse else (0,), mica.int64)
    counts = _made(mode, x, (count,) if return_counts else (0,), mica.int64)
    return values, inverse, counts


def _unique_consecutive(mode, env, x, return_inverse=False, return_counts=False, dim=None):
    if dim is not None:
        return _unique_dim_consecutive(mode, env, x, dim, return_inverse, return_counts)
    return _unique(mode, env, x, True, return_inverse, return_counts)


def _unique_dim(mode, env, x, dim, sorted=True, return_inverse=False, return_counts=False):
    sizes, place = list(open_sizes.own_sizes(x)), dim % max(x.dim(), 1)
    length = make(sizes[place])
    most, least = length.bounds(env._ranges)[1], 1 if _C.TensorBase.numel(x) else 0
    count = _remembered(x, ("unique", place), lambda: env.create_unbacked_symint(least=least, greatest=most).node._expr)
    values = _made(mode, x, (*sizes[:place], count, *sizes[place + 1 :]), x.dtype)
    return values, _made(mode, x, (sizes[place],), mica.int64), _made(mode, x, (count,), mica.int64)


def _unique_dim_consecutive(mode, env, x, dim, return_inverse=False, return_counts=False):
    return _unique_dim(mode, env, x, dim)


def _bincount(mode, env, x, weights=None, minlength=0):
    count = _remembered(x, f"bincount {minlength}", lambda: env.create_unbacked_symint(least=minlength).node._expr)
    dtype = mica.int64 if weights is None else weights.dtype if weights.dtype is mica.float32 else mica.float64
    return _made(mode, x, (count,), dtype)


def _repeat_interleave(mode, env, repeats):
    total = _remembered(repeats, "repeat_interleave", lambda: env.create_unbacked_symint(least=0).node._expr)
    return _made(mode, repeats, (total,), repeats.dtype)


_RULES = {"nonzero": _nonzero, "argwhere": _nonzero, "masked_select": _masked_select, "_unique2": _unique,
          "unique_consecutive": _unique_consecutive, "unique_dim": _unique_dim,
          "unique_dim_consecutive": _unique_dim_consecutive, "bincount": _bincount, "repeat_interleave": _repeat_interleave}  # fmt: skip
