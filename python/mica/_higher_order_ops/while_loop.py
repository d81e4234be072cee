"""torch.while_loop: repeats a function while a condition holds."""

import sys

__all__ = ["while_loop"]


def while_loop(cond_fn, body_fn, carried_inputs):
    """Repeat a function of the carried values while a condition on them holds. While a graph is made, both are part of it."""
    from mica._higher_order_ops.recorders import recorder

    around = recorder()
    if around is not None:
        from mica._higher_order_ops.subgraphs import recorded_while

        return recorded_while(around, cond_fn, body_fn, carried_inputs)
    values = tuple(carried_inputs)
    branches = sys.modules.get("mica.onnx.branches")
    while True:
        goes_on = cond_fn(*values)
        if branches is not None:
            branches.check_loop(goes_on)
        if not bool(goes_on):
            break
        result = body_fn(*values)
        values = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    return values
