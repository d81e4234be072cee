"""Steps of parameters that are spread over processes: each process changes its parts, with states that are spread alike."""

import mica
from mica.optim.optimizer import Optimizer

# Steps in which an element depends on no other: parts can be changed on their own.
_BY_ELEMENT = frozenset([
    "_adadelta_step", "_adagrad_step", "_adam_step", "_adamax_step", "_adamw_step", "_asgd_step", "_nadam_step",
    "_radam_step", "_rmsprop_step", "_rprop_step", "_sgd_step",
])  # fmt: skip


def _part(parameter, gradient_needed=True):
    """The part of a parameter as a leaf with its gradient, which is spread as the parameter is."""
    from mica.distributed.tensor._redistribute import redistributed

    local = parameter._local_tensor.detach().requires_grad_(parameter.requires_grad)
    gradient = parameter.grad
    if gradient is not None:
        local.grad = redistributed(gradient, parameter._spec.placements)._local_tensor
    return local


@mica.no_grad()
def change(optimizer: Optimizer, step, more):
    """One step of the parts."""
    from mica.distributed.tensor import DTensor

    if step.__name__ not in _BY_ELEMENT:
        raise NotImplementedError(
            f"{type(optimizer).__name__} of parameters that are spread over processes is not in Mica: its steps need whole "
            "matrices"
        )
    groups, state, parts = [], {}, []
    for group in optimizer.param_groups:
        mine = []
        for parameter in group["params"]:
            if not isinstance(parameter, DTensor):
                mine.append(parameter)
                if parameter in optimizer.state:
                    state[parameter] = optimizer.state[parameter]
                continue
            part = _part(parameter)
            mine.append(part)
            parts.append((parameter, part))
            if parameter in optimizer.state:
                kept = optimizer.state[parameter]
                state[part] = {k: v._local_tensor if isinstance(v, DTensor) else v for k, v in kept.items()}
        groups.append({**group, "params": mine})
    local = type(optimizer.state)(optimizer.state.default_factory, state)
    step(groups, local, *more)
    for group, changed in zip(optimizer.param_groups, groups, strict=True):
        group.update({key: value for key, value in changed.items() if key != "params"})
    spread = {id(part) for _, part in parts}
    for key, kept in local.items():
        if id(key) not in spread:
            optimizer.state[key] = kept
    for parameter, part in parts:
        if part in local:
            before = optimizer.state[parameter]
            for name, value in local[part].items():
                before[name] = _as_parameter(value, before.get(name), parameter, part)


def _as_parameter(value, before, parameter, part):
    """A state of a part as one of the parameter: spread alike if it has an element for each of the part's."""
    from mica.distributed.tensor import DTensor
    from mica.distributed.tensor._dtensor_spec import DTensorSpec

    if isinstance(before, DTensor) and before._local_tensor is value:
        return before
    if not isinstance(value, mica.Tensor) or value.shape != part.shape or (value.dim() == 0 and parameter.dim() != 0):
        return value
    if part.dim() == 0 and value.dtype != part.dtype:
        return value
    spec = parameter._spec
    meta = spec.tensor_meta._replace(dtype=value.dtype)
    return DTensor(value, DTensorSpec(spec.mesh, spec.placements, meta), requires_grad=False)


@mica.no_grad()
def zero(groups):
    """Set all gradients to zero."""
    for group in groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.grad = parameter.grad.detach()
                parameter.grad.zero_()
