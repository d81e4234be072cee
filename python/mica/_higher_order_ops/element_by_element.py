"""map and scan as loops of Python."""

__all__ = ["mapped", "scanned"]


def mapped(f, leaves, spec, args):
    """Calls a function for one element after the other, and stacks the results."""
    import mica
    from mica.utils._pytree import tree_map, tree_unflatten

    rows = [f(tree_unflatten([leaf[i] for leaf in leaves], spec), *args) for i in range(len(leaves[0]))]
    return tree_map(lambda *each: None if each[0] is None else mica.stack(each), *rows)


def scanned(combine_fn, init, leaves, spec):
    """(the last carry, the outputs), element by element along the first dimension."""
    import mica
    from mica.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

    carry, rows, nesting = init, [], tree_flatten(init)[1]
    for i in range(leaves[0].shape[0] if leaves else 0):
        given = tree_unflatten(tree_leaves(carry), nesting)  # a step may nest what it returns otherwise
        carry, out = combine_fn(given, tree_unflatten([leaf[i] for leaf in leaves], spec))
        rows.append(out)
    return carry, tree_map(lambda *each: mica.stack(each), *rows) if rows else ()
