"""A step on other parameters with another state."""

import contextlib
from collections import defaultdict

from mica._C import Tensor

_NAME = "swap_in_optimizer_params_and_state"


def _check_state(state):
    if not isinstance(state, dict):
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['state'] to be a dict mapping packed parameter ids to per-param state "
            f"dicts, got {type(state).__name__}."
        )
    if any(isinstance(key, Tensor) for key in state):
        raise RuntimeError(f"{_NAME} requires optimizer.state_dict()-style state keyed by packed parameter ids.")
    if any(isinstance(key, int) and not isinstance(value, dict) for key, value in state.items()):
        raise RuntimeError(f"{_NAME} requires per-parameter optimizer state entries to be dictionaries.")


def _check_group(i, live, group):
    if not isinstance(group, dict):
        raise RuntimeError(f"{_NAME} requires each optimizer param group to be a dictionary.")
    numbers = group.get("params")
    if not isinstance(numbers, list) or not all(isinstance(n, int) for n in numbers):
        raise RuntimeError(
            f"{_NAME} requires optimizer.state_dict()-style param_groups[*]['params'] entries keyed by packed parameter "
            "ids."
        )
    if len(live["params"]) != len(numbers):
        raise RuntimeError(
            f"swapin_optim_state param group {i} has a different number of params than the live optimizer param group."
        )
    more, less = [k for k in group if k not in live], [k for k in live if k not in group]
    if more or less:
        raise RuntimeError(
            f"{_NAME} requires optimizer.state_dict()-style param group keys to exactly match the live optimizer group "
            f"keys for group {i}. Keys only in swap-in: {more}. Keys only in live: {less}."
        )


@contextlib.contextmanager
def swap_in_optimizer_params_and_state(optimizer, swapin_parameters, swapin_optim_state):
    """For a block, let the optimizer work on these parameters with this state, then give it back its own.

    The parameters are a dictionary in the optimizer's order, the state is as state_dict() returns it. What the block
    changes in tensors in place stays; other changes of the state are forgotten.
    """
    if not optimizer.state:
        raise RuntimeError(f"{_NAME} requires initialized optimizer state.")
    if not isinstance(swapin_optim_state, dict):
        raise RuntimeError(f"{_NAME} requires a DCP-style optimizer state_dict.")
    state, groups = swapin_optim_state.get("state"), swapin_optim_state.get("param_groups")
    _check_state(state)
    if not isinstance(groups, list):
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['param_groups'] to be a list of param-group dicts, got "
            f"{type(groups).__name__}."
        )
    if len(groups) != len(optimizer.param_groups):
        raise RuntimeError("swapin_optim_state has a different number of parameter groups than the live optimizer.")
    for i, (live, group) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        _check_group(i, live, group)
    numbers = [number for group in groups for number in group["params"]]
    params = list(swapin_parameters.values())
    if len(numbers) > len(params):
        raise RuntimeError(f"{_NAME} requires the explicit parameter state to match optimizer.param_groups ordering.")
    extra = [key for key in state if key not in numbers]
    if extra:
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['state'] to be keyed only by packed parameter ids from "
            f"param_groups[*]['params']; got extra keys {extra!r}."
        )

    own_state = optimizer.state
    own_groups = [dict(group) for group in optimizer.param_groups]
    try:
        others = iter(params)
        optimizer.state = defaultdict(dict)
        for live, group in zip(optimizer.param_groups, groups, strict=True):
            live.update(group)
            live["params"] = [next(others) for _ in group["params"]]
            for p, number in zip(live["params"], group["params"], strict=True):
                optimizer.state[p] = dict(state.get(number, {}))
        yield
    finally:
        for live, own in zip(optimizer.param_groups, own_groups, strict=True):
            live.clear()
            live.update(own)
        optimizer.state = own_state
