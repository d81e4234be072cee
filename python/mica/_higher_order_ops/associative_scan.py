"""Scans with a function that is associative."""

__all__ = ["associative_scan"]


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """The running combination of elements along a dimension: in steps of doubling distance, for whole tensors at once."""
    import mica
    from mica.utils._pytree import tree_flatten, tree_map, tree_unflatten

    leaves, spec = tree_flatten(xs)
    dim = dim % leaves[0].dim()
    if reverse:
        leaves = [leaf.flip(dim) for leaf in leaves]
    length, step = leaves[0].shape[dim], 1
    while step < length:
        before = tree_unflatten([leaf.narrow(dim, 0, length - step) for leaf in leaves], spec)
        here = tree_unflatten([leaf.narrow(dim, step, length - step) for leaf in leaves], spec)
        combined = tree_flatten(combine_fn(before, here))[0]
        leaves = [mica.cat([leaf.narrow(dim, 0, step), new], dim) for leaf, new in zip(leaves, combined, strict=True)]
        step *= 2
    if reverse:
        leaves = [leaf.flip(dim) for leaf in leaves]
    return tree_map(lambda leaf: leaf, tree_unflatten(leaves, spec))
