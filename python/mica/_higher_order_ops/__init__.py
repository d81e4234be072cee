"""Operations whose arguments are functions: run as the Python they are; within graphs, cond and while_loop are nodes."""

__all__ = ["cond", "map", "scan", "while_loop"]


def _is_traced(value):
    from mica._higher_order_ops.subgraphs import recorder

    return recorder() if not isinstance(value, bool) else None


def cond(pred, true_fn, false_fn, operands=()):
    """One of two functions of the operands. While a graph is made, both are part of it."""
    _check_cond(pred, true_fn, false_fn, operands)
    around = _is_traced(pred)
    if around is not None:
        from mica._higher_order_ops.subgraphs import recorded_cond

        return recorded_cond(around, pred, true_fn, false_fn, operands)
    return (true_fn if bool(pred) else false_fn)(*operands)


def _check_cond(pred, true_fn, false_fn, operands):
    import mica
    from mica.utils._pytree import tree_leaves

    if not isinstance(pred, (int, float, mica.Tensor, mica.SymBool)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if isinstance(pred, mica.Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    kinds = (mica.Tensor, int, mica.SymInt)
    if not isinstance(operands, (tuple, list)) or not all(isinstance(leaf, kinds) for leaf in tree_leaves(operands)):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but got "
            f"{operands}."
        )


def while_loop(cond_fn, body_fn, carried_inputs):
    """Repeat a function of the carried values while a condition on them holds. While a graph is made, both are part of it."""
    around = _is_traced(None)
    if around is not None:
        from mica._higher_order_ops.subgraphs import recorded_while

        return recorded_while(around, cond_fn, body_fn, carried_inputs)
    values = tuple(carried_inputs)
    while bool(cond_fn(*values)):
        result = body_fn(*values)
        values = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    return values


def map(f, xs, *args):
    """The results of a function for every element along the first dimension, stacked."""
    import mica
    from mica.utils._pytree import tree_flatten, tree_map, tree_unflatten

    leaves, spec = tree_flatten(xs)
    if not leaves or len(leaves[0]) == 0:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    rows = [f(tree_unflatten([leaf[i] for leaf in leaves], spec), *args) for i in range(len(leaves[0]))]
    return tree_map(lambda *each: mica.stack(each), *rows)


def scan(combine_fn, init, xs, *, dim=0, reverse=False):
    """Carry a value along a dimension: combine_fn(carry, x) returns the next one and an output, which are stacked."""
    import mica
    from mica.utils._pytree import tree_flatten, tree_map, tree_unflatten

    leaves, spec = tree_flatten(xs)
    order = range(leaves[0].shape[dim])
    carry, rows = init, []
    for i in reversed(order) if reverse else order:
        carry, out = combine_fn(carry, tree_unflatten([leaf.select(dim, i) for leaf in leaves], spec))
        rows.append(out)
    if reverse:
        rows.reverse()
    return carry, tree_map(lambda *each: mica.stack(each, dim), *rows)
