"""The states and the groups of an optimizer as they are saved: with numbers in the place of parameters."""

from collections import defaultdict
from collections.abc import Iterable
from copy import deepcopy
from itertools import chain

from mica._C import Tensor


def numbered(param_groups, state):
    """A dictionary of the states by the parameters' numbers, and of the groups with these numbers."""
    numbers = {}
    groups = []
    start = 0
    for group in param_groups:
        packed = {key: value for key, value in group.items() if key != "params"}
        for i, p in enumerate(group["params"], start):
            numbers.setdefault(id(p), i)
        packed["params"] = [numbers[id(p)] for p in group["params"]]
        start += len(packed["params"])
        groups.append(packed)
    by_number = {numbers[id(key)] if isinstance(key, Tensor) else key: value for key, value in state.items()}
    return {"state": by_number, "param_groups": groups}


def taken_over(groups, state_dict, adapt):
    """The states and the groups of a saved dictionary, for the parameters of `groups`.

    `adapt(param, value, number, saved_groups, key)` makes a saved tensor a state of its parameter.
    """
    saved_groups = deepcopy(state_dict["param_groups"])
    if len(groups) != len(saved_groups):
        raise ValueError("loaded state dict has a different number of parameter groups")
    if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved_groups, strict=True)):
        raise ValueError(
            "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
        )
    params = dict(
        zip(
            chain.from_iterable(g["params"] for g in saved_groups),
            chain.from_iterable(g["params"] for g in groups),
            strict=True,
        )
    )

    def adapted(param, value, number, key=None):
        if isinstance(value, Tensor):
            return adapt(param, value, number, state_dict["param_groups"], key)
        if isinstance(value, dict):
            return {k: adapted(param, v, number, k) for k, v in value.items()}
        if isinstance(value, Iterable):
            return type(value)(adapted(param, v, number) for v in value)
        return value

    state = defaultdict(dict)
    for key, value in state_dict["state"].items():
        if key in params:
            state[params[key]] = adapted(params[key], value, key)
        else:
            state[key] = value
    for group, saved in zip(groups, saved_groups, strict=True):
        saved["params"] = group["params"]
        if "param_names" in group and "param_names" not in saved:
            saved["param_names"] = group["param_names"]
    return {"state": state, "param_groups": saved_groups}
