"""A function of every element along the first dimension."""

__all__ = ["map"]

_NAME = "torch.ops.higher_order.map_impl"


def map(f, xs, *args):
    """The results of a function for every element along the first dimension, stacked. While a graph is made, it is a node."""
    import mica
    from mica._higher_order_ops.element_by_element import mapped
    from mica._higher_order_ops.recorders import recorder
    from mica._higher_order_ops.subgraphs import recorded_map
    from mica._higher_order_ops.watched import check_tensors, texts, watched
    from mica.utils._pytree import tree_flatten, tree_map

    leaves, spec = tree_flatten(xs)
    if not all(isinstance(leaf, mica.Tensor) for leaf in leaves):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs [{texts(leaves)}].")
    if not leaves or leaves[0].shape[0] == 0:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    if any(leaf.shape[0] != leaves[0].shape[0] for leaf in leaves):
        raise RuntimeError(
            f"Leading dimensions of mapped xs must be consistent. Got shapes {[leaf.shape for leaf in leaves]}."
        )

    called = watched(_NAME, f)

    def step(*given):
        result = called(*given)
        check_tensors(_NAME, tree_map(lambda leaf: leaves[0] if leaf is None else leaf, result))
        return result

    around = recorder()
    if around is not None:
        return recorded_map(around, step, leaves, spec, args)
    return mapped(step, leaves, spec, args)
