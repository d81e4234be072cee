"""A value that is carried along a dimension."""

__all__ = ["scan"]


def scan(combine_fn, init, xs, *, dim=0, reverse=False):
    """Carry a value along a dimension: combine_fn(carry, x) returns the next one and an output, which are stacked.

    While a graph is made, it is a node.
    """
    from mica._higher_order_ops.element_by_element import scanned
    from mica._higher_order_ops.recorders import recorder
    from mica._higher_order_ops.subgraphs import recorded_scan
    from mica.utils._pytree import tree_flatten, tree_map

    leaves, spec = tree_flatten(xs)
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if leaves and dim < 0:
        dim += leaves[0].dim()
    if any(not 0 <= dim < leaf.dim() for leaf in leaves):
        raise IndexError(f"scan: there is no dimension {dim} in all of the inputs")
    leaves = [leaf.movedim(dim, 0) if dim else leaf for leaf in leaves]
    leaves = [leaf.flip(0) if reverse else leaf for leaf in leaves]
    around = recorder() if leaves else None
    if around is not None and hasattr(around, "unseen"):
        carry, out = recorded_scan(around, combine_fn, init, leaves, spec)
    else:
        carry, out = scanned(combine_fn, init, leaves, spec)
    out = tree_map(lambda each: each.flip(0) if reverse else each, out)
    # An output of fewer dimensions keeps its steps in front.
    return carry, tree_map(lambda each: each.movedim(0, dim) if 0 < dim < each.dim() else each, out)
