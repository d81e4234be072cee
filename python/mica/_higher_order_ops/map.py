"""A function of every element along the first dimension."""

__all__ = ["map"]


def map(f, xs, *args):
    """The results of a function for every element along the first dimension, stacked. While a graph is made, it is a node."""
    from mica._higher_order_ops.element_by_element import mapped
    from mica._higher_order_ops.recorders import recorder
    from mica._higher_order_ops.subgraphs import recorded_map
    from mica.utils._pytree import tree_flatten

    leaves, spec = tree_flatten(xs)
    if not leaves or leaves[0].shape[0] == 0:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    if any(leaf.shape[0] != leaves[0].shape[0] for leaf in leaves):
        raise RuntimeError(
            f"Leading dimensions of mapped xs must be consistent. Got shapes {[leaf.shape for leaf in leaves]}."
        )
    around = recorder()
    if around is not None and hasattr(around, "unseen"):
        return recorded_map(around, f, leaves, spec, args)
    return mapped(f, leaves, spec, args)
