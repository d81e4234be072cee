"""Gradients of operators that programs define."""

import mica
from mica.autograd.function import Function


def with_backward(op, device, args, kwargs):
    """Run an operator so that its registered backward is called for its gradients."""
    flat, rebuild = _flatten(args)
    # Each tensor of a list counts as an input; backward sees lists.
    out_was_tuple = []

    def forward(ctx, *inputs):
        given = rebuild(inputs)
        result = op.run(device, given, kwargs)
        if op.setup_context is not None:
            if kwargs:
                op.setup_context(ctx=ctx, inputs=given, keyword_only_inputs=kwargs, output=result)
            else:
                op.setup_context(ctx=ctx, inputs=given, output=result)
        out_was_tuple.append(type(result))
        ctx._mica_kinds = [type(each) for each in result] if isinstance(result, (tuple, list)) else None
        if isinstance(result, list):
            return tuple(result)
        return result

    def backward(ctx, *grads):
        if op.backward is None:
            raise RuntimeError(
                f"Trying to backward through {op.qualified_name} but no autograd formula was registered. "
                "Please use register_autograd to add one."
            )
        if out_was_tuple[0] is list:
            grads = (list(grads),)
        found = op.backward(ctx, *grads)
        found = found if isinstance(found, tuple) else (found,)
        return _spread(found, args)

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    result = type(Function)(f"GeneratedBackwardFor_{_plain_name(op)}", (Function,), members).apply(*flat)
    return list(result) if out_was_tuple and out_was_tuple[0] is list else result


def _plain_name(op):
    """ns::name.overload as part of a class's name."""
    namespace, _, name = op.qualified_name.partition("::")
    return f"{namespace}_{name if '.' in name else name + '.default'}".replace(".", "_")


def _is_tensor_list(value):
    return isinstance(value, (list, tuple)) and len(value) > 0 and any(isinstance(item, mica.Tensor) for item in value)


def _flatten(args):
    flat = []
    for value in args:
        flat += list(value) if _is_tensor_list(value) else [value]

    def rebuild(inputs):
        remaining = iter(inputs)
        return tuple(
            type(value)([next(remaining) for _ in value]) if _is_tensor_list(value) else next(remaining)
            for value in args
        )

    return flat, rebuild


def _spread(found, args):
    """One gradient for every flat input."""
    if len(found) < len(args):
        found = (*found, *[None] * (len(args) - len(found)))
    flat = []
    for grad, value in zip(found, args, strict=False):
        if _is_tensor_list(value):
            flat += list(grad) if grad is not None else [None] * len(value)
        else:
            flat.append(grad)
    return tuple(flat)
