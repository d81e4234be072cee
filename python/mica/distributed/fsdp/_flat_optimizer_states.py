"""States of optimizers of modules in FullyShardedDataParallel, by the names of parameters: whole, or in pieces."""

import enum
import warnings

import mica
from mica.distributed.fsdp._flat_states import cut, mesh_of, plain, settings_of
from mica.distributed.fsdp.api import StateDictType


class OptimStateKeyType(enum.Enum):
    """What parameters are called in an optimizer's state: their names, or their numbers."""

    PARAM_NAME = enum.auto()
    PARAM_ID = enum.auto()


def _wrapped_modules(model):
    return [(name, module) for name, module in model.named_modules() if "_state_dict_type" in module.__dict__]


def _by_parameter(model):
    """For each parameter of the model (flat ones too): (wrapped module, group, the views it stands for, their names)."""
    found = {}
    for prefix, wrapped in _wrapped_modules(model):
        group = wrapped.__dict__["_fsdp_state"].group
        if group is None:
            continue
        start = plain(f"{prefix}.") if prefix else ""
        names = {view: start + plain(view.name) for view in group.views}
        if group.use_orig_params:
            for view in group.views:
                found[id(view.parameter)] = (wrapped, group, [view], names)
        else:
            found[id(group.flat)] = (wrapped, group, group.views, names)
    for name, parameter in model.named_parameters():
        found.setdefault(id(parameter), (None, None, [], {None: plain(name)}))
    return found


def _names_of(entry):
    _, _, views, names = entry
    return [names[view] for view in views] if views else [names[None]]


def _number_of(optim):
    """Each parameter's number in the optimizer's own state."""
    return {id(p): n for n, p in enumerate(p for group in optim.param_groups for p in group["params"])}


def _lies_flat(value, parameter):
    return isinstance(value, mica.Tensor) and value.dim() > 0 and value.numel() == parameter.numel()


# ---- getting


def _gather_entry(entry, parameters, states, key):
    """One entry of the states of a group's parameters, for all its views: whole tensors by name."""
    _, group, views, names = entry
    if not group.use_orig_params:
        whole = group.gathered(states[0][key])
        return {names[view]: view.of(whole).clone() for view in views}
    piece = mica.zeros_like(group.flat.data, dtype=next(s[key].dtype for s in states if key in s))
    for view, state in zip(views, states, strict=True):
        begin, length = view.within(group.start, group.piece)
        if key in state:
            piece.narrow(0, begin, length).copy_(state[key].reshape(-1))
    whole = group.gathered(piece)
    return {names[v]: v.of(whole).clone() for v, state in zip(views, states, strict=True) if key in state}


def _collected(model, optim, state_dict, shards, to_cpu, rank0_only):
    """The state by names. Every process takes part; with rank0_only only the first one keeps it."""
    state_dict = optim.state_dict() if state_dict is None else state_dict
    known, numbers, found, groups = _by_parameter(model), _number_of(optim), {}, []
    keeps = not rank0_only or mica.distributed.get_rank() == 0
    together = {}  # groups whose parameters are gathered together
    for group in optim.param_groups:
        for parameter in group["params"]:
            entry = known.get(id(parameter))
            if entry is None:
                raise RuntimeError("the optimizer has a parameter that the model has not")
            state = state_dict["state"].get(numbers[id(parameter)], {})
            if entry[1] is None:
                if state and keeps:
                    found[_names_of(entry)[0]] = dict(state)
                continue
            together.setdefault(id(entry[1]), (entry, []))[1].append((parameter, entry[2], state))
    for entry, members in together.values():
        wrapped, group, _, names = entry
        parameters = [parameter for parameter, _, _ in members]
        views = [view for _, own, _ in members for view in own]
        states = [state for _, _, state in members]
        keys = dict.fromkeys(key for state in states for key in state)
        for key in keys:
            given = next((p, s[key]) for p, s in zip(parameters, states, strict=True) if key in s)
            if _lies_flat(given[1], given[0]):
                whole = _gather_entry((wrapped, group, views, names), parameters, states, key)
                for name, value in whole.items():
                    if shards:
                        found.setdefault(name, {})[key] = cut(value, mesh_of(wrapped), to_cpu)
                    elif keeps:
                        found.setdefault(name, {})[key] = value.cpu() if to_cpu else value
                continue
            if keeps:
                for _, own, state in members:
                    for view in own if key in state else ():
                        value = state[key]
                        found.setdefault(names[view], {})[key] = (
                            value.clone() if isinstance(value, mica.Tensor) else value
                        )
    for group, saved in zip(optim.param_groups, state_dict["param_groups"], strict=True):
        names = [name for parameter in group["params"] for name in _names_of(known[id(parameter)])]
        groups.append({**saved, "params": sorted(names)})
    return {"state": found, "param_groups": groups} if keeps else {}


def optim_state_dict(model, optim, optim_state_dict=None, group=None):
    """The optimizer's state by the names of parameters, of the kind that set_state_dict_type has chosen."""
    settings = settings_of(model)
    config = settings.optim_state_dict_config
    if settings.state_dict_type is StateDictType.LOCAL_STATE_DICT:
        raise NotImplementedError("optim_state_dict of LOCAL_STATE_DICT: use optim.state_dict(), which has the pieces")
    return _collected(
        model, optim, optim_state_dict, settings.state_dict_type is StateDictType.SHARDED_STATE_DICT,
        config.offload_to_cpu, getattr(config, "rank0_only", False),
    )  # fmt: skip


def full_optim_state_dict(model, optim, optim_input=None, rank0_only=True, group=None):
    """The whole state by the names of parameters, in the memory of the CPU."""
    _old("full_optim_state_dict", "optim_state_dict")
    return _collected(model, optim, None, False, True, rank0_only)


def sharded_optim_state_dict(model, optim, group=None):
    """The state by the names of parameters, in pieces."""
    _old("sharded_optim_state_dict", "optim_state_dict")
    return _collected(model, optim, None, True, False, False)


def _old(name, other):
    warnings.warn(
        f"``FullyShardedDataParallel.{name}``is being deprecated and is replaced by ``FullyShardedDataParallel.{other}``. "
        f"``FullyShardedDataParallel.{name}`` may be removed after PyTorch 2.2.",
        FutureWarning,
        stacklevel=3,
    )


# ---- setting


def _cut_state(entry, saved):
    """This process's state of a parameter, from that of the names it stands for."""
    _, group, views, names = entry
    if group is None:
        return dict(saved[names[None]])
    keys = dict.fromkeys(key for view in views for key in saved[names[view]])
    made = {}
    for key in keys:
        values = [saved[names[view]][key] for view in views]
        values = [value.full_tensor() if hasattr(value, "full_tensor") else value for value in values]
        whole = isinstance(values[0], mica.Tensor) and values[0].dim() and values[0].shape == views[0].shape
        if not whole:
            made[key] = values[0]
        elif group.use_orig_params:
            begin, length = views[0].within(group.start, group.piece)
            first = group.start + begin - views[0].offset
            value = values[0].detach().reshape(-1)
            part = value.narrow(0, min(max(first, 0), value.numel()), length).clone()
            made[key] = part.view(views[0].shape) if group.size == 1 else part
        else:
            flat = values[0].new_zeros(group.piece * group.size)
            for view, value in zip(views, values, strict=True):
                view.of(flat).copy_(value)
            made[key] = flat.narrow(0, group.start, group.piece).clone()
    return made


def _numbered(model, optim, whole):
    """A state by names in the form that the optimizer's load_state_dict takes."""
    known, numbers, state, groups = _by_parameter(model), _number_of(optim), {}, []
    with mica.no_grad():
        for group in optim.param_groups:
            source = None
            for parameter in group["params"]:
                entry = known[id(parameter)]
                names = _names_of(entry)
                source = source or next((each for each in whole["param_groups"] if names[0] in each["params"]), None)
                if all(name in whole["state"] for name in names):
                    state[numbers[id(parameter)]] = _cut_state(entry, whole["state"])
            if source is None:
                raise RuntimeError(
                    f"the state has no group of parameters for {_names_of(known[id(group['params'][0])])}"
                )
            options = {key: value for key, value in source.items() if key != "params"}
            groups.append({**options, "params": [numbers[id(parameter)] for parameter in group["params"]]})
    return {"state": state, "param_groups": groups}


def optim_state_dict_to_load(model, optim, optim_state_dict, is_named_optimizer=False, load_directly=False, group=None):
    """A state by names, whole or in pieces, in the form that this process's optimizer loads."""
    if is_named_optimizer:
        raise NotImplementedError(
            "optim_state_dict_to_load(is_named_optimizer=True): optimizers here number their states"
        )
    config = settings_of(model).optim_state_dict_config
    if getattr(config, "rank0_only", False):
        optim_state_dict = _from_first(optim_state_dict)
    made = _numbered(model, optim, optim_state_dict)
    if load_directly:
        optim.load_state_dict(made)
    return made


def _from_first(state):
    given = [state if mica.distributed.get_rank() == 0 else None]
    mica.distributed.broadcast_object_list(given, src=0)
    return given[0]


def shard_full_optim_state_dict(full_optim_state_dict, model, optim_input=None, optim=None):
    """This process's part of a whole state, which every process has."""
    _old("shard_full_optim_state_dict", "optim_state_dict_to_load")
    return _numbered(model, _needed(optim), full_optim_state_dict)


def scatter_full_optim_state_dict(full_optim_state_dict, model, optim_input=None, optim=None, group=None):
    """This process's part of a whole state, which the first process has."""
    _old("scatter_full_optim_state_dict", "optim_state_dict_to_load")
    return _numbered(model, _needed(optim), _from_first(full_optim_state_dict))


def flatten_sharded_optim_state_dict(sharded_optim_state_dict, model, optim):
    """A state in pieces in the form that this process's optimizer loads."""
    _old("flatten_sharded_optim_state_dict", "optim_state_dict_to_load")
    return _numbered(model, optim, sharded_optim_state_dict)


def _needed(optim):
    if optim is None:
        raise NotImplementedError("the optimizer is needed: pass optim=, which replaces optim_input")
    return optim


def rekey_optim_state_dict(optim_state_dict, optim_state_key_type, model, optim_input=None, optim=None):
    """A whole state by names as one by numbers, or the other way round, for a model that is not wrapped."""
    numbers = _number_of(_needed(optim))
    by_name = {name: numbers[id(p)] for name, p in model.named_parameters() if id(p) in numbers}
    if optim_state_key_type is OptimStateKeyType.PARAM_NAME:
        table = {number: name for name, number in by_name.items()}
    else:
        table = by_name
    groups = [
        {**group, "params": sorted(table[key] for key in group["params"])} for group in optim_state_dict["param_groups"]
    ]
    return {"state": {table[key]: value for key, value in optim_state_dict["state"].items()}, "param_groups": groups}
