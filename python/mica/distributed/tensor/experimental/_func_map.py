"""Functions of plain tensors for spread ones: each process calls them with its parts."""

import functools

import mica
from mica.distributed.tensor._api import DTensor
from mica.distributed.tensor._utils import normalize_placements
from mica.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["local_map"]


def local_map(
    func=None, out_placements=None, in_placements=None, in_grad_placements=None, device_mesh=None, *,
    redistribute_inputs=False,
):  # fmt: skip
    """A function of spread tensors that calls `func` with their parts; its outputs are parts as out_placements says."""
    if func is None:
        return functools.partial(
            local_map, out_placements=out_placements, in_placements=in_placements, in_grad_placements=in_grad_placements,
            device_mesh=device_mesh, redistribute_inputs=redistribute_inputs,
        )  # fmt: skip
    return functools.partial(
        _called, func, out_placements, in_placements, in_grad_placements, device_mesh, redistribute_inputs
    )


def _called(func, out_placements, in_placements, in_grad_placements, mesh, redistributes, *args, **kwargs):
    flat, shape = tree_flatten(args)
    if in_placements is not None and len(in_placements) != len(flat):
        raise AssertionError(
            f"in_placements length {len(in_placements)} does not match the number of input args {len(flat)}!"
        )
    if in_grad_placements is not None and len(in_grad_placements) != len(flat):
        raise AssertionError(
            f"in_grad_placements length {len(in_grad_placements)} does not match the number of input args {len(flat)}!"
        )
    parts, spread = [], False
    for i, value in enumerate(flat):
        if not isinstance(value, DTensor):
            if in_placements is not None and in_placements[i] is not None and not isinstance(value, mica.Tensor):
                raise AssertionError(
                    f"Non-Tensor input {value} expects None placements but received {in_placements[i]}!"
                )
            parts.append(value)
            continue
        spread, mesh = True, mesh or value.device_mesh
        if in_placements is not None:
            if in_placements[i] is None:
                raise AssertionError(f"DTensor input {value} expects placements but received {in_placements[i]}!")
            wanted = normalize_placements(in_placements[i], mesh, value.dim())
            if value.placements != wanted:
                if not redistributes:
                    raise ValueError(
                        f"arg {value} in local_map has a mismatched placements: arg placements is {value.placements} but the "
                        f"input placements is {wanted}! If redistribute_inputs is wanted, set redistribute_inputs=True to "
                        "local_map."
                    )
                value = value.redistribute(mesh, wanted)
        grads = None if in_grad_placements is None else in_grad_placements[i]
        parts.append(value.to_local(grad_placements=grads))
    out = func(*tree_unflatten(parts, shape), **kwargs)
    if not spread:
        return out
    results, out_shape = tree_flatten(out)
    if (
        results
        and isinstance(out_placements, (list, tuple))
        and not isinstance(out_placements[0], (list, tuple, type(None)))
    ):
        out_placements = (out_placements,) * len(results)
    if out_placements is None:
        out_placements = (None,)
    if not isinstance(out_placements, (list, tuple)) or len(out_placements) != len(results):
        raise AssertionError(
            f"local_map requires one PlacementType be provided for each output value, received {out_placements} out_placements "
            f"but {len(results)} is expected!"
        )
    made = []
    for value, placements in zip(results, out_placements, strict=True):
        if not isinstance(value, mica.Tensor):
            if placements is not None:
                raise AssertionError(f"Non-tensor output {value} expects None placements but received {placements}!")
            made.append(value)
        elif placements is None:
            made.append(value)
        else:
            made.append(
                DTensor.from_local(value, mesh, normalize_placements(placements, mesh, value.dim()), run_check=False)
            )
    return tree_unflatten(made, out_shape)
