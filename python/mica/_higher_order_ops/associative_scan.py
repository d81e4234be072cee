"""Scans with a function that is associative."""

__all__ = ["associative_scan"]


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """The running combination of elements along a dimension: in steps of doubling distance, for whole tensors at once.

    Elements are what is left of the tensors without that dimension. With "generic" the function is mapped over them (vmap);
    a "pointwise" one means the same for whole tensors. Both run on every device.
    """
    import mica
    from mica.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

    leaves, spec = tree_flatten(xs)
    dim = _checked_dim(combine_fn, leaves, dim, reverse, combine_mode)
    combine, axis = combine_fn, dim
    if combine_mode == "generic":
        combine, axis = mica.vmap(combine_fn), 0
        leaves = [leaf.movedim(dim, 0) for leaf in leaves]
    if reverse:
        leaves = [leaf.flip(axis) for leaf in leaves]
    length, step = leaves[0].shape[axis], 1
    while step < length:
        before = tree_unflatten([leaf.narrow(axis, 0, length - step) for leaf in leaves], spec)
        here = tree_unflatten([leaf.narrow(axis, step, length - step) for leaf in leaves], spec)
        combined = tree_leaves(combine(before, here))
        leaves = [mica.cat([leaf.narrow(axis, 0, step), new], axis) for leaf, new in zip(leaves, combined, strict=True)]
        step *= 2
    if reverse:
        leaves = [leaf.flip(axis) for leaf in leaves]
    if axis != dim:
        leaves = [leaf.movedim(0, dim) for leaf in leaves]
    return tree_unflatten(leaves, spec)


def _checked_dim(combine_fn, leaves, dim, reverse, combine_mode):
    """The dimension, counted from the first one, after torch's checks of the arguments."""
    import mica

    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise ValueError(f"Dim must be an int, but got {type(dim)}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse)}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf, but there is none")
    if not all(isinstance(leaf, mica.Tensor) for leaf in leaves):
        raise ValueError(f"xs leaves must be a Tensor, but got {leaves}")
    if any(leaf.is_sparse for leaf in leaves):
        raise ValueError("xs leaves must dense Tensors, consider using `to_dense()`")
    count = leaves[0].dim()
    if not -count <= dim < count:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {dim})")
    dim = dim % count
    if any(leaf.dim() <= dim or leaf.shape[dim] == 0 for leaf in leaves):
        raise ValueError(
            "All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0. Got shapes "
            f"{[tuple(leaf.shape) for leaf in leaves]} and dim {dim}."
        )
    if any(leaf.shape[dim] != leaves[0].shape[dim] for leaf in leaves):
        raise ValueError(f"associative_scan: the tensors of xs differ in size along dimension {dim}")
    return dim
