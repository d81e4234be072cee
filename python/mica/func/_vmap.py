"""vmap: a function of one example, mapped over a batch.

The function runs once, on tensors that stand for one example and hold all (`_batched.py`). A function that asks for
values (with .item(), with branches on them) cannot run so: it runs for one example after the other, and the results are
stacked.
"""

import functools

from mica import _C
from mica.func._levels import transforming
from mica.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

__all__ = ["vmap"]


def _name(func):
    return getattr(func, "__name__", repr(func))


def _is_whole(x):
    """Whether an object takes its batch off by itself: a dictionary of tensors that knows the dimensions of its batch."""
    return not isinstance(x, _C.TensorBase) and hasattr(x, "_add_batch_dim") and hasattr(x, "_maybe_remove_batch_dim")


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """A function that applies `func` to every example of its inputs along `in_dims` and stacks the results.

    Args:
        func: a function of one example
        in_dims: the dimension of examples of each argument; None for an argument that all examples share
        out_dims: where the dimension of examples is in the results
        randomness: what random numbers in `func` are: "error", the "same" for all examples, or "different" for each
        chunk_size: how many examples are computed at a time; None computes all

    A function that asks for values, as branches do, runs for one example after the other; torch refuses it.

    Example::

        dots = torch.vmap(torch.dot)(torch.randn(8, 3), torch.randn(8, 3))  # (8,)
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and not chunk_size > 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args, **kwargs):
        leaves, dims, spec, size = _inputs(func, in_dims, args)
        with transforming():
            if chunk_size is not None and size > chunk_size:
                return _in_chunks(func, leaves, dims, spec, size, out_dims, kwargs, randomness, chunk_size)
            return _map(func, leaves, dims, spec, size, out_dims, kwargs, randomness)

    return mapped


def _inputs(func, in_dims, args):
    """The leaves of the arguments, the dimension that each is mapped over, and the number of examples."""
    call = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{call}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, "
            f"got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap "
            "over a function with no inputs. The latter is unsupported."
        )
    leaves, spec = tree_flatten(args, is_leaf=_is_whole)
    dims = _broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"{call}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    for leaf, dim in zip(leaves, dims, strict=True):
        _check_dim(call, leaf, dim)
    sizes = [leaf.size(dim) for leaf, dim in zip(leaves, dims, strict=True) if dim is not None]
    if not sizes:
        raise ValueError(f"{call}: at least one input must be mapped: every in_dim is None")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return leaves, dims, spec, sizes[0]


def _check_dim(call, leaf, dim):
    if dim is None:
        return
    if not isinstance(dim, int):
        raise ValueError(
            f"{call}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
        )
    if not isinstance(leaf, _C.Tensor) and not _is_whole(leaf):
        raise ValueError(
            f"{call}: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over "
            "non-Tensor arguments, please use None as the respective in_dim"
        )
    if not -leaf.dim() <= dim < leaf.dim():
        raise ValueError(
            f"{call}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {leaf.dim()} so "
            f"expected in_dim to satisfy -{leaf.dim()} <= in_dim < {leaf.dim()}."
        )


def _part(x, dim, start, count):
    return x[(slice(None),) * (dim % x.dim()) + (slice(start, start + count),)]


def _in_chunks(func, leaves, dims, spec, size, out_dims, kwargs, randomness, chunk):
    """A few examples at a time: less memory, more calls."""
    import mica

    before = mica.get_rng_state() if randomness == "same" else None
    results = []
    for start in range(0, size, chunk):
        count = min(chunk, size - start)
        if before is not None and start:
            mica.set_rng_state(before)
        part = [x if d is None else _part(x, d, start, count) for x, d in zip(leaves, dims, strict=True)]
        results.append(tree_flatten(_map(func, part, dims, spec, count, out_dims, kwargs, randomness)))
    out_spec = results[0][1]
    out = _out_dims(func, out_dims, out_spec)
    columns = zip(*(flat for flat, _ in results), strict=True)
    joined = [c[0] if d is None else mica.cat(c, d) for c, d in zip(columns, out, strict=True)]
    return tree_unflatten(joined, out_spec)


def _out_dims(func, out_dims, out_spec):
    for dim in tree_flatten(out_dims)[0]:
        if dim is not None and not isinstance(dim, int):
            raise ValueError(
                f"vmap({_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of "
                "ints representing where in the outputs the vmapped dimension should appear."
            )
    if out_spec.is_leaf() and isinstance(out_dims, tuple) and len(out_dims) == 1:
        return list(out_dims)  # as torch has it
    out = _broadcast_to_and_flatten(out_dims, out_spec)
    if out is None:
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
            f"`outputs`. out_dims has structure {tree_flatten(out_dims)[1]} but outputs has structure {out_spec}."
        )
    return out


def _map(func, leaves, dims, spec, size, out_dims, kwargs, randomness):
    import mica
    from mica.func import _batch_rules  # noqa: F401 - enters the rules
    from mica.func._batched import DataDependent, _is_vmap_fallback_enabled

    before = mica.get_rng_state()
    try:
        result = _at_once(func, leaves, dims, spec, size, out_dims, kwargs, randomness)
    except DataDependent as error:
        if getattr(error, "changed", False) or not _outermost() or not _is_vmap_fallback_enabled():
            raise
        mica.set_rng_state(before)
        result = _one_by_one(func, leaves, dims, spec, size, out_dims, kwargs, randomness, before)
    with mica._C.DisableTorchFunction():  # a mode sees only the program's own calls
        drawn = not mica.equal(before, mica.get_rng_state())
    if randomness == "error" and drawn:
        from mica.func._batch_rules_random import _ERROR

        mica.set_rng_state(before)
        raise RuntimeError(_ERROR)
    return result


def _outermost():
    from mica.func._batched import active_levels

    return not active_levels()


def _at_once(func, leaves, dims, spec, size, out_dims, kwargs, randomness):
    import contextlib

    from mica.func._batch_rules_random import DrawForEach
    from mica.func._batched import DataDependent, Level, active_levels

    levels = active_levels()
    level = Level(len(levels) + 1, size, randomness)
    levels.append(level)
    try:
        examples = [x if d is None else _wrapped(x, d, level) for x, d in zip(leaves, dims, strict=True)]
        with contextlib.nullcontext() if randomness == "same" else DrawForEach():
            result = func(*tree_unflatten(examples, spec), **kwargs)
    except DataDependent as error:
        error.changed = level.changed or getattr(error, "changed", False)
        raise
    finally:
        levels.pop()
    flat, out_spec = tree_flatten(result, is_leaf=_is_whole)
    out = _out_dims(func, out_dims, out_spec)
    return tree_unflatten([_unwrapped(func, x, d, level) for x, d in zip(flat, out, strict=True)], out_spec)


def _wrapped(x, dim, level):
    from mica.func._batched import wrap

    if _is_whole(x):
        return x._add_batch_dim(in_dim=dim % x.dim(), vmap_level=level.depth)
    value = x.movedim(dim, 0)
    example = wrap(value, level)
    example._batch_source = (x, dim % x.dim(), value)
    return example


def _unwrapped(func, x, dim, level):
    from mica.func._batched import is_batched

    if _is_whole(x):
        return x._maybe_remove_batch_dim(_name(func), vmap_level=level.depth, batch_size=level.size, out_dim=dim)
    if not isinstance(x, _C.Tensor):
        if dim is None:
            return x
        raise ValueError(
            f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type {type(x)}. Did you "
            "mean to set out_dims= to None for output?"
        )
    if is_batched(x, level):
        if dim is None:
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` can not return a BatchedTensor when out_dim is None"
            )
        value = x._batch_value
        return value.movedim(0, dim) if dim else value
    if dim is None:
        return x
    value = x.expand(level.size, *x.shape)
    return value.movedim(0, dim) if dim else value


def _picked(x, dim, i):
    return x[(slice(None),) * (dim % x.dim()) + (i,)] if _is_whole(x) else x.select(dim, i)


def _one_by_one(func, leaves, dims, spec, size, out_dims, kwargs, randomness, before):
    import mica

    def example(i):
        if size:
            chosen = [x if d is None else _picked(x, d, i) for x, d in zip(leaves, dims, strict=True)]
        else:  # there is no example: zeros in an example's shape tell the shape of the results
            chosen = [
                x if d is None else x.new_zeros(x.shape[: d % x.dim()] + x.shape[d % x.dim() + 1 :])
                for x, d in zip(leaves, dims, strict=True)
            ]
        return func(*tree_unflatten(chosen, spec), **kwargs)

    results = []
    for i in range(max(size, 1)):
        if randomness == "same" and i:
            mica.set_rng_state(before)
        results.append(tree_flatten(example(i)))
    out_spec = results[0][1]
    out = _out_dims(func, out_dims, out_spec)
    columns = zip(*(flat for flat, _ in results), strict=True)
    stacked = [_stack(func, column, dim, size) for column, dim in zip(columns, out, strict=True)]
    return tree_unflatten(stacked, out_spec)


def _stack(func, column, dim, size):
    import mica

    if dim is None:
        return column[0]
    for value in column:
        if not isinstance(value, _C.Tensor):
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type {type(value)}. Did you "
                "mean to set out_dims= to None for output?"
            )
    return mica.stack(column, dim) if size else mica.stack(column, dim).narrow(dim, 0, 0)
