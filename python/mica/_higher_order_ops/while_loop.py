"""torch.while_loop: repeats a function while a condition holds."""

import sys

import mica

__all__ = ["while_loop"]

_NAME = "torch.while_loop"


def while_loop(cond_fn, body_fn, carried_inputs):
    """Repeat a function of the carried values while a condition on them holds. While a graph is made, both are part of it."""
    from mica._higher_order_ops.recorders import recorder
    from mica._higher_order_ops.subgraphs import recorded_while
    from mica._higher_order_ops.watched import watched

    _check_inputs(cond_fn, body_fn, carried_inputs)
    around = recorder()
    cond_fn, body_fn = watched(_NAME, cond_fn), watched(_NAME, body_fn)
    if around is not None:
        return recorded_while(around, cond_fn, body_fn, carried_inputs)
    return looped(cond_fn, body_fn, carried_inputs)


def _check_inputs(cond_fn, body_fn, carried_inputs):
    from mica._higher_order_ops.watched import texts
    from mica.utils._pytree import tree_leaves

    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"carried_inputs must be a tuple or list but got {type(carried_inputs)}")
    if not all(isinstance(leaf, (mica.Tensor, mica.SymInt, int)) for leaf in tree_leaves(carried_inputs)):
        raise RuntimeError(
            "Expect carried_inputs to be a tuple of possibly nested dict/list/tuple that only consists of tensor or int "
            f"leaves, but got [{texts(carried_inputs)}]."
        )


def looped(cond_fn, body_fn, carried_inputs):
    """The loop of Python."""
    from mica._higher_order_ops.watched import check_alike, refuse_endless
    from mica.utils._pytree import tree_leaves, tree_map

    values = tuple(carried_inputs)
    result, begun = None, False
    branches = sys.modules.get("mica.onnx.branches")
    while True:
        goes_on = cond_fn(*values)
        if branches is not None:
            branches.check_loop(goes_on)
        if not _holds(goes_on):
            break
        if goes_on is True and not _has_numbers(values):  # it can have read nothing that changes from step to step
            refuse_endless(_NAME)
        result, begun = body_fn(*values), True
        made = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        check_alike("body_fn_output and carried_inputs", tree_leaves(made), tree_leaves(values))
        values = made
    return result if begun else tree_map(lambda leaf: leaf.clone() if isinstance(leaf, mica.Tensor) else leaf, values)


def _has_numbers(values):
    from mica.utils._pytree import tree_leaves

    return not all(isinstance(leaf, mica.Tensor) for leaf in tree_leaves(values))


def _holds(goes_on):
    """Whether a loop goes on."""
    from mica._higher_order_ops.watched import texts

    is_tensor = isinstance(goes_on, mica.Tensor)
    is_truth = (
        not goes_on.dim() and goes_on.dtype is mica.bool if is_tensor else isinstance(goes_on, (bool, mica.SymBool))
    )
    if not is_truth:
        raise RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got {texts([goes_on])}")
    return bool(goes_on)
