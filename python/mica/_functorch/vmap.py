"""The parts of vmap, by torch's names. Packages use them for containers of tensors that are mapped over as a whole."""

from mica import _C
from mica._C import Tensor  # noqa: F401
from mica._C._functorch import _add_batch_dim, _remove_batch_dim, is_batchedtensor  # noqa: F401
from mica.func._vmap import _name as _get_name
from mica.func._vmap import vmap
from mica.utils._pytree import (  # noqa: F401
    TreeSpec,
    _broadcast_to_and_flatten,
    tree_flatten,
    tree_map_,
    tree_unflatten,
)


def _maybe_remove_batch_dim(name, batched_output, vmap_level, batch_size, out_dim):
    """The tensor of all examples. Where `out_dim` is None, a value that does not depend on the example is returned as it is."""
    if out_dim is None:
        if isinstance(batched_output, _C.TensorBase) and is_batchedtensor(batched_output):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return batched_output
    if not isinstance(batched_output, _C.TensorBase):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}. Did you mean to "
            "set out_dims= to None for output?"
        )
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)


__all__ = ["_get_name", "_maybe_remove_batch_dim", "vmap"]
