"""Tensors within torch.func's transforms: the examples of a vmap, by the names of torch's engine."""

from mica.func._batched import (
    BatchedTensor,
    _is_vmap_fallback_enabled,  # noqa: F401
    _set_vmap_fallback_enabled,  # noqa: F401
    active_levels,
    wrap,
)


def _level(depth):
    for level in active_levels():
        if level.depth == depth:
            return level
    raise RuntimeError(f"There is no vmap of level {depth}: {len(active_levels())} are running")


def _add_batch_dim(tensor, in_dim, level):
    """What stands for one example of a tensor within the vmap of a level."""
    return wrap(tensor.movedim(in_dim, 0), _level(level))


def _remove_batch_dim(tensor, level, batch_size, out_dim):
    """The tensor of all examples, with their dimension at `out_dim`."""
    if is_batchedtensor(tensor) and tensor._batch_level.depth == level:
        return tensor._batch_value.movedim(0, out_dim)
    return tensor.expand(batch_size, *tensor.shape).movedim(0, out_dim)


def is_batchedtensor(tensor):
    """Whether a tensor stands for one example of a vmap."""
    return type(tensor) is BatchedTensor


is_functorch_wrapped_tensor = is_batchedtensor


def _no(tensor):
    return False


is_legacy_batchedtensor = is_gradtrackingtensor = is_functionaltensor = _no


def maybe_current_level():
    """The number of the innermost vmap that is running; None outside."""
    levels = active_levels()
    return levels[-1].depth if levels else None


def maybe_get_level(tensor):
    """The number of the vmap that a tensor belongs to, -1 for a plain one."""
    return tensor._batch_level.depth if is_batchedtensor(tensor) else -1


def maybe_get_bdim(tensor):
    """The dimension of the examples within a tensor's values, -1 for a plain one."""
    return 0 if is_batchedtensor(tensor) else -1


def get_unwrapped(tensor):
    """The values of all examples; a plain tensor as it is."""
    return tensor._batch_value if is_batchedtensor(tensor) else tensor
