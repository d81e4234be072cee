"""Models in FullyShardedDataParallel, which give and take states by its own means."""

import contextlib

import mica


def is_wrapped(model):
    """Whether a model, or a module in it, is a FullyShardedDataParallel."""
    return any("_state_dict_type" in module.__dict__ for module in model.modules())


def kind_of_state(model, full):
    """A block in which such a model saves and loads whole tensors, or DTensors."""
    if not is_wrapped(model):
        return contextlib.nullcontext()
    fsdp = mica.distributed.fsdp
    kind = fsdp.StateDictType.FULL_STATE_DICT if full else fsdp.StateDictType.SHARDED_STATE_DICT
    return fsdp.FullyShardedDataParallel.state_dict_type(model, kind)


def optimizer_state(model, optim, full):
    """The state of an optimizer by the names of parameters."""
    with kind_of_state(model, full):
        return mica.distributed.fsdp.FullyShardedDataParallel.optim_state_dict(model, optim)


def load_optimizer_state(model, optim, state, full):
    """Loads such a state."""
    with kind_of_state(model, full):
        made = mica.distributed.fsdp.FullyShardedDataParallel.optim_state_dict_to_load(model, optim, state)
    type(optim).load_state_dict(optim, made)
