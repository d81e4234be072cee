"""A value that is carried along a dimension."""

import mica

__all__ = ["scan"]

_NAME = "torch.ops.higher_order.scan"


def scan(combine_fn, init, xs, *, dim=0, reverse=False):
    """Carry a value along a dimension: combine_fn(carry, x) returns the next one and an output, which are stacked.

    While a graph is made, it is a node.
    """
    from mica._higher_order_ops.element_by_element import scanned
    from mica._higher_order_ops.recorders import recorder
    from mica._higher_order_ops.subgraphs import recorded_scan
    from mica.utils._pytree import tree_flatten, tree_leaves, tree_map

    leaves, spec = tree_flatten(xs)
    if not leaves:
        return init, []
    dim = _checked_dim(combine_fn, tree_leaves(init), leaves, dim, reverse)
    leaves = [leaf.movedim(dim, 0) if dim else leaf for leaf in leaves]
    leaves = [leaf.flip(0) if reverse else leaf for leaf in leaves]
    around, step = recorder(), _watched(combine_fn)
    if around is not None:
        carry, out = recorded_scan(around, step, init, leaves, spec)
    else:
        carry, out = scanned(step, init, leaves, spec)
    out = tree_map(lambda each: each.flip(0) if reverse else each, out)
    # An output of fewer dimensions keeps its steps in front.
    return carry, tree_map(lambda each: each.movedim(0, dim) if 0 < dim < each.dim() else each, out)


def _checked_dim(combine_fn, init, leaves, dim, reverse):
    """The dimension, counted from the first one, after torch's checks of the arguments."""
    if not callable(combine_fn):
        raise RuntimeError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise RuntimeError(f"Dim must be an int, but got {type(dim)}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse)}")
    if not init:
        raise RuntimeError("scan() operator requires init leaves.")
    for words, values in (("init", init), ("xs", leaves)):
        for value in values:
            if not isinstance(value, mica.Tensor):
                raise RuntimeError(f"All {words} leaves must be a Tensor but got {value}")
    count = leaves[0].dim()
    if not -count <= dim < count:
        raise IndexError(f"scan: there is no dimension {dim} in a tensor of {count} dimensions")
    dim = dim % count
    if any(leaf.dim() <= dim or leaf.shape[dim] == 0 for leaf in leaves):
        raise RuntimeError(
            "All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0. Got shapes "
            f"{[tuple(leaf.shape) for leaf in leaves]} and dim {dim}."
        )
    return dim


def _watched(combine_fn):
    """The function of a step, which has to return a pair of tensors, the first one like what it is given."""
    from mica._higher_order_ops.watched import check_alike, check_tensors, refuse, texts, watched
    from mica.utils._pytree import tree_leaves

    called = watched(_NAME, combine_fn)

    def step(carry, x):
        result = called(carry, x)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            refuse(
                _NAME, f"The function has to return a pair, the carry and an output, but it returns {texts([result])}."
            )
        check_tensors(_NAME, result)
        check_alike("init and carry", tree_leaves(carry), tree_leaves(result[0]))
        return result

    return step
