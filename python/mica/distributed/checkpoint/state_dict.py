"""The states of models and optimizers, the same whatever wraps or shards the model."""

import functools
import warnings
from collections import OrderedDict
from dataclasses import dataclass

import mica
from mica.distributed.checkpoint._optimizer_state import (
    _init_optim_state,
    flattened,
    named_state,
    part_of,
    unflattened,
)
from mica.distributed.checkpoint._parameter_names import plain_name
from mica.distributed.checkpoint._wrapped_models import (
    is_wrapped,
    kind_of_state,
    load_optimizer_state,
    optimizer_state,
)
from mica.nn.modules.module import _IncompatibleKeys

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]


@dataclass
class StateDictOptions:
    """How states are got and set: whole rather than in parts, on the CPU, without frozen parameters, from rank 0, flat."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _checked(options):
    options = StateDictOptions() if options is None else options
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    return options


def _mapped(value, change):
    """The value with all its tensors changed."""
    if isinstance(value, mica.Tensor):
        return change(value)
    if isinstance(value, dict):
        return type(value)((key, _mapped(each, change)) for key, each in value.items())
    if type(value) in (list, tuple):
        return type(value)(_mapped(each, change) for each in value)
    return value


def _full_or_cpu(state, options):
    if options.full_state_dict:
        state = _mapped(state, lambda tensor: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor)
        if options.cpu_offload and _ranks() > 1 and mica.distributed.get_rank() != 0:
            return {}  # only rank 0 holds the whole state
    if options.cpu_offload:
        state = _mapped(state, lambda tensor: tensor.cpu() if tensor.device.type != "cpu" else tensor)
    return state


def _ranks():
    return mica.distributed.get_world_size() if mica.distributed.is_initialized() else 1


def _submodule_prefixes(model, submodules):
    if not submodules:
        return ()
    warnings.warn(
        "Getting submodules only model/optim state_dict is deprecated and will be removed in 2.5. This feature can be achieved "
        "by manually filtering out the state_dict returned from get_state_dict.",
        FutureWarning,
        stacklevel=4,
    )
    return tuple(f"{plain_name(model, name)}." for name, module in model.named_modules() if module in submodules)


# ---- getting


def get_model_state_dict(model, *, submodules=None, options=None):
    """The state of a model, by plain names."""
    options = _checked(options)
    prefixes = _submodule_prefixes(model, submodules)
    with mica.no_grad(), kind_of_state(model, options.full_state_dict):
        state = OrderedDict((plain_name(model, name), value) for name, value in _own_state(model).items())
        if prefixes:
            keep = options.keep_submodule_prefixes
            state = {
                name if keep else name.removeprefix(prefix): value
                for name, value in state.items()
                for prefix in prefixes
                if name.startswith(prefix)
            }
        if options.ignore_frozen_params:
            for name, parameter in model.named_parameters():
                if not parameter.requires_grad:
                    state.pop(plain_name(model, name), None)
        return _full_or_cpu(state, options)


def _own_state(model):
    """The model's own state_dict, also where _patch_model_state_dict has put another in its place."""
    return dict(type(model).state_dict(model))


def get_optimizer_state_dict(model, optimizers, *, submodules=None, options=None):
    """The state of one or several optimizers, by the names of parameters."""
    options = _checked(options)
    whole = {"state": {}, "param_groups": []}
    with mica.no_grad():
        for optim in _several(optimizers):
            if is_wrapped(model):
                _init_optim_state(optim)
                state = optimizer_state(model, optim, options.full_state_dict)
            else:
                state = named_state(model, optim)
            whole["state"].update(state["state"])
            whole["param_groups"].extend(state["param_groups"])
        if options.flatten_optimizer_state_dict:
            whole = flattened(whole)
        return _full_or_cpu(whole, options)


def _several(optimizers):
    chosen = (optimizers,) if isinstance(optimizers, mica.optim.Optimizer) else tuple(optimizers)
    if not chosen:
        raise RuntimeError("Optimizers are not passed in but optim_only is set to True.")
    return chosen


def get_state_dict(model, optimizers, *, submodules=None, options=None):
    """The states of a model and of its optimizers."""
    model_state = get_model_state_dict(model, submodules=submodules, options=options)
    several = isinstance(optimizers, mica.optim.Optimizer) or tuple(optimizers)
    return model_state, get_optimizer_state_dict(model, optimizers, options=options) if several else {}


# ---- setting


def _like(target, value):
    """A whole tensor in the form of one that is there: sharded as that one is."""
    if isinstance(value, mica.Tensor) and hasattr(target, "device_mesh") and not hasattr(value, "device_mesh"):
        from mica.distributed.tensor import distribute_tensor

        return distribute_tensor(value.to(target.dtype), target.device_mesh, target.placements)
    return value


def _from_rank0(state):
    """The whole state that rank 0 has, on all ranks: tensors one after the other."""
    if _ranks() == 1:
        return state
    dist, rank = mica.distributed, mica.distributed.get_rank()
    tensors = []

    def describe(tensor):
        tensors.append(tensor)
        return ("a tensor", len(tensors) - 1, tuple(tensor.shape), tensor.dtype)

    told = [_mapped(state, describe) if rank == 0 else None]
    dist.broadcast_object_list(told, src=0)
    received = {}

    def rebuild(value):
        if isinstance(value, tuple) and value and value[0] == "a tensor":
            _, number, shape, dtype = value
            if number not in received:
                made = tensors[number].detach().clone() if rank == 0 else mica.empty(shape, dtype=dtype)
                dist.broadcast(made, src=0)
                received[number] = made
            return received[number]
        if isinstance(value, dict):
            return {key: rebuild(each) for key, each in value.items()}
        return type(value)(rebuild(each) for each in value) if type(value) in (list, tuple) else value

    return rebuild(told[0])


def set_model_state_dict(model, model_state_dict, *, options=None):
    """Load the state of a model, by plain names. Returns the keys that did not fit."""
    options = _checked(options)
    state = dict(model_state_dict)
    if options.broadcast_from_rank0:
        state = _from_rank0(state)
    elif not state:
        return _IncompatibleKeys({}, {})
    with kind_of_state(model, options.full_state_dict):
        return _load_model(model, state, options)


def _load_model(model, state, options):
    own = _own_state(model)
    wrapped = {plain_name(model, name): name for name in own}
    is_meta = any(isinstance(each, mica.Tensor) and each.device.type == "meta" for each in own.values())
    named = {}
    for name, value in state.items():
        full = wrapped.get(name, name)
        named[full] = _like(own.get(full), value) if options.full_state_dict else value
    missing = [name for name, full in wrapped.items() if full != name and full not in named]
    if missing and options.strict:
        raise RuntimeError(f"Missing key: {missing[0]}.")
    with mica.no_grad():
        return type(model).load_state_dict(model, named, strict=options.strict, assign=is_meta)


def set_optimizer_state_dict(model, optimizers, optim_state_dict, *, options=None):
    """Load the state of one or several optimizers, by the names of parameters."""
    options = _checked(options)
    if options.broadcast_from_rank0:
        optim_state_dict = _from_rank0(optim_state_dict)
    with mica.no_grad():
        for optim in _several(optimizers):
            _init_optim_state(optim)
            if is_wrapped(model) and "state" in optim_state_dict:
                load_optimizer_state(model, optim, optim_state_dict, options.full_state_dict)
                continue
            if not optim_state_dict:
                state = {"state": {}, "param_groups": []}
            elif "state" in optim_state_dict:
                state = part_of(model, optim, optim_state_dict, options.strict)
            else:
                state = unflattened(model, optim, optim_state_dict)
            if options.full_state_dict:
                present = named_state(model, optim)["state"]
                state["state"] = {
                    name: {key: _like(present.get(name, {}).get(key), value) for key, value in values.items()}
                    for name, values in state["state"].items()
                }
            type(optim).load_state_dict(optim, state)


def set_state_dict(model, optimizers, *, model_state_dict, optim_state_dict, options=None):
    """Load the states of a model and of its optimizers."""
    several = isinstance(optimizers, mica.optim.Optimizer) or tuple(optimizers)
    if several:
        set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)


# ---- in place of the methods


def _patch_model_state_dict(model, *, options=None):
    """Let the model's own state_dict and load_state_dict be get_model_state_dict and set_model_state_dict."""
    model.state_dict = functools.partial(get_model_state_dict, model, options=options)
    model.load_state_dict = lambda state_dict: set_model_state_dict(model, state_dict, options=options)


def _patch_optimizer_state_dict(model, *, optimizers, options=None):
    """Replace state_dict and load_state_dict of optimizers, so that each of them gets and sets the state of all."""
    for optim in _several(optimizers):
        optim.state_dict = functools.partial(get_optimizer_state_dict, model, optimizers, options=options)
        optim.load_state_dict = lambda state_dict: set_optimizer_state_dict(
            model, optimizers, state_dict, options=options
        )
