"""Scans with a function that is associative."""

__all__ = ["associative_scan"]


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """The running combination of elements along a dimension: in steps of doubling distance, for whole tensors at once.

    Both modes are computed the same way, on every device.
    """
    import mica
    from mica.utils._pytree import tree_flatten, tree_map, tree_unflatten

    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise ValueError(f"Dim must be an int, but got {type(dim)}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    leaves, spec = tree_flatten(xs)
    if not leaves:
        raise ValueError(f"Expected at least 1 xs leaf, but there is no tensor in {xs!r}")
    if not all(isinstance(leaf, mica.Tensor) for leaf in leaves):
        raise ValueError(f"xs leaves must be a Tensor, but got {leaves}")
    count = leaves[0].dim()
    if not -count <= dim < count:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {dim})")
    if any(leaf.dim() != count or leaf.shape[dim] != leaves[0].shape[dim] for leaf in leaves):
        raise ValueError(f"associative_scan: the tensors of xs differ in size along dimension {dim}")
    dim = dim % count
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
