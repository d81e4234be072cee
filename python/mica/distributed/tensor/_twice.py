"""Gradients of gradients: the gradient of an operator on spread tensors, as one more operator on their parts."""

import types

import mica
from mica.distributed.tensor.placement_types import gradient_placements


def _plan(operator, plan, args, kwargs, wanted, present, specs):
    """How the gradient of one input follows from the inputs and the gradients of the results `present`."""
    count = len(specs)

    def run(given, named):
        parts, weights = given[:count], given[count:]
        results = operator.computed(plan, args, kwargs, parts)
        outs = [t for t in (results if plan.is_list else [results]) if isinstance(t, mica.Tensor)]
        weights = [w / plan.averaged[i] if plan.averaged[i] != 1 else w for i, w in zip(present, weights, strict=True)]
        mine = parts[wanted]
        (found,) = mica.autograd.grad([outs[i] for i in present], [mine], weights, create_graph=True, allow_unused=True)
        return mica.zeros_like(mine) if found is None else found

    call = types.SimpleNamespace(in_place=False, random=False, size_argument=None, func=plan.call.func)
    inputs = (*plan.inputs, *(gradient_placements(plan.outputs[i]) for i in present))
    made = type(plan)(call, plan.mesh, inputs, (plan.gradients[wanted],), [specs[wanted].tensor_meta])
    made.is_list, made.run = False, run
    return made


def gradients(ctx, operator, saved, grads):
    """The gradients of all inputs, which can be differentiated again."""
    plan = ctx.plan
    if plan.call.in_place or plan.call.random:
        raise NotImplementedError(f"{plan.call.func}: the gradient of its gradient is not in Mica for spread tensors")
    args, kwargs, tensors = saved._given
    present = [i for i, grad in enumerate(grads) if grad is not None]
    made = [None] * len(ctx.specs)
    if present:
        given = [*tensors, *(grads[i] for i in present)]
        # One after the other, since gradients of one call may have different placements.
        for i in ctx.wanted:
            made[i] = operator.apply(_plan(operator, plan, args, kwargs, i, present, ctx.specs), given, {}, *given)
    return made
