"""The state of optimizers by the names of parameters, rather than by their numbers."""

from itertools import chain

import mica
from mica.distributed.checkpoint._parameter_names import names_of_parameters


def _init_optim_state(optim):
    """Let an optimizer that has not stepped yet make its state, by a step that changes no parameter."""
    parameters = [each for group in optim.param_groups for each in group["params"]]
    # An optimizer without a state although there are gradients needs none.
    if optim.state or any(each.grad is not None for each in parameters):
        return
    for each in parameters:
        if each.requires_grad:
            each.grad = mica.zeros_like(each)
    rates = [group.get("lr") for group in optim.param_groups]
    for group in optim.param_groups:
        if "lr" in group:
            group["lr"] = mica.tensor(0.0) if isinstance(group["lr"], mica.Tensor) else 0.0
    optim.step(closure=None)
    for group, rate in zip(optim.param_groups, rates, strict=True):
        if "lr" in group:
            group["lr"] = rate
    optim.zero_grad(set_to_none=True)


def named_state(model, optim):
    """An optimizer's state_dict with names in place of numbers."""
    _init_optim_state(optim)
    state = optim.state_dict()
    names = names_of_parameters(model)
    parameters = chain.from_iterable(group["params"] for group in optim.param_groups)
    by_number = {number: names[each][0] for number, each in enumerate(parameters) if each in names}
    return {
        "state": {by_number[number]: values for number, values in state["state"].items()},
        "param_groups": [
            {**group, "params": [by_number[number] for number in group["params"]]} for group in state["param_groups"]
        ],
    }


def flattened(state):
    """One dictionary: state.<name>.<entry> and param_groups.<name>.<option>."""
    flat = {}

    def add(prefix, values):
        for key, value in values.items():
            if isinstance(value, dict):
                add(f"{prefix}.{key}", value)
            elif isinstance(value, (mica.Tensor, int, float)):
                flat[f"{prefix}.{key}"] = value
            else:
                raise NotImplementedError(
                    f"Flattening optimizer state_dict only supports tensor, int, float, dict states now. Type is {type(value)}."
                )

    for name, values in state["state"].items():
        add(f"state.{name}", values)
    for group in state["param_groups"]:
        for name in group["params"]:
            for key, value in group.items():
                if key != "params":
                    flat[f"param_groups.{name}.{key}"] = value
    return flat


def _nested(flat, prefix):
    """The entries of a flat dictionary under a prefix."""
    found = {}
    for key, value in flat.items():
        if key.startswith(f"{prefix}."):
            *way, last = key[len(prefix) + 1 :].split(".")
            here = found
            for part in way:
                here = here.setdefault(part, {})
            here[last] = value
    return found


def unflattened(model, optim, flat):
    """The state of an optimizer from a flat dictionary."""
    names, state, groups = names_of_parameters(model), {}, []
    for group in optim.param_groups:
        options = [key for key in group if key != "params"]
        made = {"params": []}
        for each in group["params"]:
            candidates = names[each]
            # A shared parameter has several names, of which one was used.
            used = [name for name in candidates if any(f"param_groups.{name}.{key}" in flat for key in options)]
            name = (used or candidates)[0]
            made["params"].append(name)
            if each.requires_grad:
                state[name] = {
                    entry: flat[f"state.{name}.{entry}"]
                    if f"state.{name}.{entry}" in flat
                    else _nested(flat, f"state.{name}.{entry}")
                    # The entries that the optimizer has by now. If it could make none yet, it gets those that were
                    # saved.
                    for entry in optim.state.get(each) or _nested(flat, f"state.{name}")
                }
        for key in options:
            values = [flat[f"param_groups.{name}.{key}"] for name in made["params"]]
            if any(value != values[0] for value in values):
                raise RuntimeError(
                    "All the parameters in the same parameter group should have the same saved param_group value. But "
                    f"{made['params'][0]}.{key} is {values[0]} while other(s) is {values}."
                )
            made[key] = values[0]
        groups.append(made)
    return {"state": state, "param_groups": groups}


def part_of(model, optim, whole, strict):
    """The state of one optimizer out of that of several."""
    if all(isinstance(key, int) for key in whole["state"]) and whole["state"]:
        return whole
    names, state, groups = names_of_parameters(model), {}, []
    for group in optim.param_groups:
        made, source = {"params": []}, None
        for each in group["params"]:
            candidates = names[each]
            saved = [
                (name, saved_group)
                for saved_group in whole["param_groups"]
                for name in candidates
                if name in saved_group["params"]
            ]
            name, source = saved[0] if saved else (candidates[0], source)
            made["params"].append(name)
            if not each.requires_grad:
                continue
            if name in whole["state"]:
                state[name] = whole["state"][name]
            elif strict and optim.state.get(each):
                raise RuntimeError(
                    f"Missing optimizer state for parameter '{name}' in checkpoint. The parameter requires gradients but has no "
                    "saved optimizer state. To load anyway, use StateDictOptions(strict=False)."
                )
        if not group["params"]:
            empty = [each for each in whole["param_groups"] if not each["params"]]
            if len(empty) != 1 or len(whole["param_groups"]) != len(optim.param_groups):
                raise ValueError(
                    "There are param groups that have zero parameters. In such a case, DSD only support exactly one param "
                    "group with zero parameters, and one optimizer."
                )
            source = empty[0]
        made |= {key: value for key, value in (source or {}).items() if key != "params"}
        groups.append(made)
    return {"state": state, "param_groups": groups}
