"""vmap where torch's package had it first."""

from mica.func import vmap


def _vmap(func, in_dims=0, out_dims=0, allow_none_pass_through=False):
    """vmap by its old name. It refuses functions that draw random numbers, and lets None be an output if that is asked for."""
    if not allow_none_pass_through:
        return vmap(func, in_dims, out_dims)
    from mica.utils._pytree import tree_flatten, tree_unflatten

    def mapped(*args):
        kept = []

        def without_none(*examples):
            values, spec = tree_flatten(func(*examples))
            kept[:] = [[value is not None for value in values], spec]
            return tuple(value for value in values if value is not None)

        found = iter(vmap(without_none, in_dims, out_dims)(*args))
        places, spec = kept
        return tree_unflatten([next(found) if is_there else None for is_there in places], spec)

    return mapped
