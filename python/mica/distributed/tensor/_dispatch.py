"""Operators on spread tensors: placements by the operator's rule, then the operator itself on this process's parts.

A rule says, for one dimension of the grid, which placements of the results follow from which placements of the inputs.
Of those that it offers, the one is taken that moves the fewest bytes. The gradient needs no rules of its own: the
operator runs on the parts with autograd's record, and where the gradient of each part lies follows from the rule.
"""

import functools
import itertools
import math

import mica
from mica import _C
from mica.distributed.tensor import _rules
from mica.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta, dtensor_class
from mica.distributed.tensor._gradients import begin_pass, locally
from mica.distributed.tensor._redistribute import redistribute_local_tensor, redistributed
from mica.distributed.tensor._utils import compute_local_shape, filled, refilled
from mica.distributed.tensor.placement_types import Partial, Replicate, Shard, _StridedShard, gradient_placements


def _flat(value, found):
    if isinstance(value, _C.TensorBase):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _flat(each, found)


def _key(value):
    if isinstance(value, (list, tuple)):
        return tuple(_key(each) for each in value)
    return (type(value), value)


class Plan:
    """How one call runs: placements of the inputs, of the results, and of the inputs' gradients."""

    def __init__(self, call, mesh, inputs, outputs, metas):
        self.call, self.mesh, self.inputs, self.outputs, self.metas = call, mesh, inputs, outputs, metas
        self.run = None  # runs on the parts in place of the operator
        count = len(inputs)
        self.gradients = tuple(tuple(self._gradient(i, dim) for dim in range(mesh.ndim)) for i in range(count))
        # For a mean that the operator computes, each part counts by its share. A mean that it is given stays a mean.
        self.averaged = [
            math.prod(
                mesh.size(dim)
                for dim, placement in enumerate(placements)
                if placement == Partial("avg") and not any(each[dim] == placement for each in inputs)
            )
            for placements in outputs
        ]

    def _gradient(self, i, dim):
        """How the gradient of an input lies that the parts' gradients are made of."""
        mine = self.inputs[i][dim]
        if isinstance(mine, Shard):
            return mine
        # Then the result depends on copies alone.
        everywhere = all(isinstance(each[dim], Replicate) for each in self.outputs)
        return Replicate() if everywhere or isinstance(mine, Partial) else Partial("sum")


def _chosen(options, current, call, dim):
    """The option that moves the fewest bytes along one dimension of the grid."""
    best, least = None, math.inf
    for option in options:
        cost = 0.0
        for now, wanted, size in zip(current, option[1], call.bytes, strict=True):
            cost += _cost(now[dim], wanted, size, call.count)
            if cost >= least:
                break
        if cost < least:
            best, least = option, cost
    return best


def _cost(now, wanted, size, count):
    """The bytes that have to move, plus a little for every change, so that a tensor that fits stays where it is."""
    if now == wanted:
        return 0.0
    if isinstance(now, Replicate):
        return 0.5 if isinstance(wanted, Shard) else 0.6
    if isinstance(now, Partial):
        if isinstance(wanted, Partial):
            return 0.5 if (now.reduce_op, wanted.reduce_op) == ("avg", "sum") else math.inf
        return 1.0 + size * (1 if isinstance(wanted, Shard) else 2)
    if isinstance(wanted, Shard):
        return 1.0 + size / count
    return math.inf if isinstance(wanted, Partial) else 1.0 + size


@functools.cache
def _table():
    from mica._generated.sharding import RULES

    return RULES


_SAME = {"movedim.int": "movedim.intlist"}  # overloads that the table has under another name


def _rule_of(func):
    name = func._schema.name.partition("::")[2]
    overload = func._schema.overload_name
    full = f"{name}.{overload}" if overload else name
    table = _table()
    full = _SAME.get(full, full)
    for each in (full, name, full.replace("_.", ".", 1), name.removesuffix("_")):
        if each in table:
            return table[each].split()
    raise NotImplementedError(
        f"Operator {func._schema.name.replace('::', '.')}.{overload or 'default'} does not have a sharding strategy registered."
    )


_plans = {}


def plan_for(func, args, kwargs, specs, needs_gradient):
    """The plan of a call whose tensors lie as `specs` say."""
    try:
        rest = _key(filled(args, itertools.repeat(None))), tuple((k, _key(v)) for k, v in _without(kwargs))
        key = (func, rest, tuple(specs), needs_gradient, _rules.loss_is_parallel())
        found = _plans.get(key)
    except TypeError:
        key, found = None, None
    if found is None:
        found = _plan(func, args, kwargs, specs, needs_gradient)
        if key is not None:
            _plans[key] = found
    return found


def _without(kwargs):
    return ((name, None if isinstance(value, _C.TensorBase) else value) for name, value in kwargs.items())


def _meta_results(func, args, kwargs, specs):
    """Sizes, strides and dtypes of the results, as tensors without elements."""
    metas = [mica.empty_strided(s.shape, s.stride, dtype=s.tensor_meta.dtype, device="meta") for s in specs]
    args, kwargs = refilled(args, kwargs, metas)
    kwargs = {k: ("meta" if k == "device" and v is not None else v) for k, v in kwargs.items()}
    with mica.no_grad():
        return func(*args, **kwargs)


# Rules of operators for which it does not matter which part of a dimension a process has.
_BY_ELEMENT = {"pointwise", "random", "same", "filled", "alike", "reduce", "norm", "equal"}


def _strided(options, current, dim):
    """The options with strided splits in place of plain ones, if inputs have such."""
    factors = {each[dim].split_factor for each in current if isinstance(each[dim], _StridedShard)}
    for factor in factors:
        for option in options:
            yield tuple(
                tuple(_StridedShard(each.dim, factor) if isinstance(each, Shard) else each for each in placements)
                for placements in option
            )


def _plan(func, args, kwargs, specs, needs_gradient):
    words = ["registered"] if func in _rules.registered else _rule_of(func)
    mesh = specs[0].mesh
    if any(spec.mesh != mesh for spec in specs):
        raise RuntimeError(
            f"{func}: DTensor does not support cross-mesh operation yet! Got meshes: "
            + ", ".join(str(spec.mesh) for spec in specs)
        )
    results = None if words == ["equal"] else _meta_results(func, args, kwargs, specs)
    made = results if isinstance(results, (list, tuple)) else [results]
    metas = [TensorMeta(tuple(t.shape), tuple(t.stride()), t.dtype) for t in made if isinstance(t, _C.TensorBase)]
    call = _rules.Call(func, args, kwargs, specs, metas, needs_gradient)
    if words == ["registered"]:
        rule = functools.partial(_rules.of_program, args=args, kwargs=kwargs)
        words = [""]
    else:
        rule = _rules.named(words[0])
    chosen = []
    current = [spec.placements for spec in specs]
    for dim in range(mesh.ndim):
        call.at(mesh, dim)
        options = list(rule(call, *words[1:]))
        if words[0] in _BY_ELEMENT:
            options = [*options, *_strided(options, current, dim)]
        if call.in_place:
            mine = current[0][dim]
            options = [option for option in options if option[1][0] == mine and option[0][0] == mine]
        option = _chosen(options, current, call, dim)
        if option is None:
            if call.in_place:
                raise RuntimeError(
                    f"{func}: in-place operations that require placement changes are not supported: the tensor lies as "
                    f"{current[0]}"
                )
            raise RuntimeError(f"{func}: no placements of its inputs follow from {current}")
        chosen.append(option)
    inputs = tuple(tuple(option[1][i] for option in chosen) for i in range(len(specs)))
    outputs = tuple(tuple(option[0][i] for option in chosen) for i in range(len(metas)))
    plan = Plan(call, mesh, inputs, outputs, metas)
    plan.is_list = isinstance(results, (list, tuple))
    plan.kind = type(results) if plan.is_list else None
    plan.run = call.replacement(plan) if call.replacement else None
    return plan


# ---- running


def _local_arguments(plan, args, kwargs, tensors):
    args, kwargs = refilled(args, kwargs, tensors)
    named = plan.call.size_argument
    if named is not None:
        # Sizes that a program gives are those of the whole tensor; the operator gets those of the part.
        sizes = list(compute_local_shape(plan.metas[0].shape, plan.mesh, plan.outputs[0]))
        place = [a.name for a in plan.call.func._schema.arguments].index(named)
        if place < len(args):
            args[place] = sizes
        else:
            kwargs[named] = sizes
    return args, kwargs


def _computed(plan, args, kwargs, locals_):
    if plan.run is not None:
        return plan.run(*refilled(args, kwargs, locals_))
    args, kwargs = _local_arguments(plan, args, kwargs, locals_)
    return plan.call.func(*args, **kwargs)


def _parts(plan, tensors):
    """This process's parts of the inputs, as the plan wants them."""
    made = []
    for tensor, placements in zip(tensors, plan.inputs, strict=True):
        spec = tensor._spec
        local = tensor._local_tensor
        if spec.placements != placements:
            local = redistribute_local_tensor(local, spec, spec.with_placements(placements))
        made.append(local)
    return made


def _wrapped(plan, results):
    DTensor = dtensor_class()

    if not plan.is_list:
        return DTensor(results, DTensorSpec(plan.mesh, plan.outputs[0], plan.metas[0]), requires_grad=False)
    specs = (DTensorSpec(plan.mesh, p, m) for p, m in zip(plan.outputs, plan.metas, strict=True))
    return [DTensor(t, next(specs), requires_grad=False) if isinstance(t, _C.TensorBase) else t for t in results]


class _Operator(mica.autograd.Function):
    """An operator on parts, with the gradients of the parts."""

    computed = staticmethod(_computed)  # for gradients of gradients

    @staticmethod
    def forward(ctx, plan, args, kwargs, *tensors):
        parts = _parts(plan, tensors)
        needed = ctx.needs_input_grad[3:]
        with mica.enable_grad(), locally():
            parts = [
                (part.clone() if plan.call.in_place and i == 0 else part.detach()).requires_grad_(bool(need))
                if need
                else part
                for i, (part, need) in enumerate(zip(parts, needed, strict=True))
            ]
            run = plan.call.functional if plan.call.in_place else None
            results = run(plan, args, kwargs, parts) if run else _computed(plan, args, kwargs, parts)
        listed = list(results) if plan.is_list else [results]
        outs = [t for t in listed if isinstance(t, _C.TensorBase)]
        ctx.plan, ctx.specs = plan, [t._spec for t in tensors]
        ctx.wanted = [i for i, need in enumerate(needed) if need]
        ctx.count = len(outs)
        if not plan.call.in_place:
            outs[0]._given = args, kwargs, tensors  # for gradients of gradients; dropped when the node drops it
        ctx.save_for_backward(*outs, *(parts[i] for i in ctx.wanted))
        ctx.set_materialize_grads(False)
        if plan.call.in_place:
            if tensors[0]._is_shared:
                tensors[0]._local_tensor.copy_(outs[0].detach())
            else:  # what earlier nodes have saved stays unchanged
                tensors[0]._local_tensor = outs[0].detach()
            ctx.mark_dirty(tensors[0])
            return tensors[0]
        wrapped = _wrapped(plan, [t.detach() for t in outs] if plan.is_list else outs[0].detach())
        fixed = [t for t, out in zip(wrapped, outs, strict=True) if not out.requires_grad] if plan.is_list else []
        if fixed:
            ctx.mark_non_differentiable(*fixed)
        return tuple(wrapped) if plan.is_list else wrapped

    @staticmethod
    def backward(ctx, *grads):
        DTensor = dtensor_class()

        plan = ctx.plan
        begin_pass()
        saved = ctx.saved_tensors
        outs, parts = saved[: ctx.count], saved[ctx.count :]
        if _C.is_grad_enabled():  # create_graph=True
            from mica.distributed.tensor._twice import gradients

            return (None, None, None, *gradients(ctx, _Operator, outs[0], grads))
        given, weights = [], []
        with locally():
            for i, grad in enumerate(grads):
                if grad is None or not outs[i].requires_grad:
                    continue
                local = redistributed(grad, gradient_placements(plan.outputs[i]))._local_tensor
                given.append(outs[i])
                weights.append(local / plan.averaged[i] if plan.averaged[i] != 1 else local)
            if not given:
                return (None,) * (3 + len(ctx.specs))
            found = mica.autograd.grad(given, parts, weights, retain_graph=True, allow_unused=True)
            made = [None] * len(ctx.specs)
            for i, local in zip(ctx.wanted, found, strict=True):
                if local is not None:
                    made[i] = DTensor(local, ctx.specs[i].with_placements(plan.gradients[i]), requires_grad=False)
        return (None, None, None, *made)


def call(func, args, kwargs):
    """The result of an operator of which some tensors are spread."""
    DTensor = dtensor_class()

    if func._schema.name.startswith("aten::_foreach_"):
        return _rules.one_by_one(func, args, kwargs)
    tensors = []
    _flat(args, tensors)
    for value in kwargs.values():
        _flat(value, tensors)
    mesh = next(t for t in tensors if isinstance(t, DTensor))._spec.mesh
    if any(not isinstance(t, DTensor) for t in tensors):
        tensors = [_as_spread(t, mesh, func) for t in tensors]
        args, kwargs = refilled(args, kwargs, tensors)
    needs = _C.is_grad_enabled() and any(t.requires_grad for t in tensors)
    plan = plan_for(func, args, kwargs, [t._spec for t in tensors], needs)
    if plan.call.random:
        from mica.distributed.tensor._random import synchronized

        synchronized(mesh)
    if needs and plan.call.differentiable:
        if plan.call.in_place and tensors[0].is_leaf and tensors[0].requires_grad:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if plan.call.in_place and getattr(tensors[0], "_views", None) is not None:
            raise NotImplementedError(
                f"{func}: in place on a view of a spread tensor whose gradient is recorded: use the form out of place"
            )
        made = _Operator.apply(plan, args, kwargs, *tensors)
    else:
        with mica.no_grad(), locally():
            results = _computed(plan, args, kwargs, _parts(plan, tensors))
        if plan.call.in_place:
            return tensors[0]
        if not plan.metas:
            return results
        made = _wrapped(plan, results)
    if plan.call.view:
        tensors[0]._is_shared = True
        for each in made if plan.is_list else [made]:
            each._views, each._is_shared = tensors[0], True
    if plan.is_list:
        return _as_kind(plan.kind, made)
    return made


def _as_kind(kind, made):
    if kind is list:
        return list(made)
    try:
        return kind(made)
    except TypeError:
        return tuple(made)


def _as_spread(tensor, mesh, func):
    DTensor = dtensor_class()

    if isinstance(tensor, DTensor):
        return tensor
    if tensor.dim() == 0 or _rules.implicitly_replicated():
        return DTensor.from_local(tensor, mesh, (Replicate(),) * mesh.ndim, run_check=False)
    raise RuntimeError(
        f"{func}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling "
        "distributed operators!"
    )
