"""The states of modules in FullyShardedDataParallel: whole, as pieces of each parameter, or as they are kept."""

import contextlib

import mica
from mica.distributed.fsdp import api
from mica.distributed.fsdp.api import StateDictType

WRAPPED = "_fsdp_wrapped_module."
_WRAPPERS = (WRAPPED, "_checkpoint_wrapped_module.")
FLAT = "_flat_param"
CONFIGS = {
    StateDictType.FULL_STATE_DICT: api.FullStateDictConfig,
    StateDictType.LOCAL_STATE_DICT: api.LocalStateDictConfig,
    StateDictType.SHARDED_STATE_DICT: api.ShardedStateDictConfig,
}
OPTIM_CONFIGS = {
    StateDictType.FULL_STATE_DICT: api.FullOptimStateDictConfig,
    StateDictType.LOCAL_STATE_DICT: api.LocalOptimStateDictConfig,
    StateDictType.SHARDED_STATE_DICT: api.ShardedOptimStateDictConfig,
}


def plain(name):
    """A name without what wrappers add."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def settings_of(model):
    """The kind of state that the wrapped modules in a model give and take."""
    found = [
        api.StateDictSettings(each._state_dict_type, each._state_dict_config, each._optim_state_dict_config)
        for each in model.modules()
        if "_state_dict_type" in each.__dict__
    ]
    if any(each != found[0] for each in found):
        raise AssertionError("All FSDP modules must have the same state dict settings.")
    return found[0] if found else api.StateDictSettings(None, None, None)


def mesh_of(wrapped):
    """The grid that DTensors of a wrapped module's state lie on."""
    from mica.distributed.device_mesh import DeviceMesh

    if wrapped._device_mesh is not None:
        return wrapped._device_mesh
    if wrapped.__dict__.get("_state_mesh") is None:
        wrapped.__dict__["_state_mesh"] = DeviceMesh.from_group(wrapped.process_group, wrapped.compute_device.type)
    return wrapped._state_mesh


def cut(tensor, mesh, to_cpu=False):
    """A whole tensor, which every process has, as a DTensor whose pieces are rows."""
    from mica.distributed.tensor import DTensor, Replicate, Shard

    size, start = Shard.local_shard_size_and_offset(tensor.shape[0], mesh.size(-1), mesh.get_local_rank(-1))
    piece = tensor.detach().narrow(0, start, size).clone(memory_format=mica.contiguous_format)
    placements = [Replicate()] * (mesh.ndim - 1) + [Shard(0)]
    stride = mica.empty(tensor.shape, device="meta").stride()
    return DTensor.from_local(
        piece.cpu() if to_cpu else piece, mesh, placements, run_check=False, shape=tensor.shape, stride=stride
    )


def register_state_hooks(wrapped):
    """A wrapped module gives and takes a state by the names that the module has without wrappers."""
    wrapped.register_state_dict_pre_hook(_before_saving)
    wrapped._register_state_dict_hook(_after_saving)
    wrapped.register_load_state_dict_pre_hook(_before_loading)
    wrapped.register_load_state_dict_post_hook(_after_loading)


def _group(wrapped):
    return wrapped.__dict__["_fsdp_state"].group


def _is_local(wrapped):
    return wrapped._state_dict_type is StateDictType.LOCAL_STATE_DICT


def _open(wrapped, writeback, here=True):
    stack = contextlib.ExitStack()
    if _group(wrapped) is not None and not _is_local(wrapped) and not wrapped._summoned:
        stack.enter_context(_group(wrapped).as_whole(writeback, here))
    elif _group(wrapped) is not None and not wrapped._summoned:
        _group(wrapped).scatter()
        _group(wrapped).take_changes()
    wrapped.__dict__["_state_stack"] = stack


def _close(wrapped):
    stack = wrapped.__dict__.pop("_state_stack", None)
    if stack is not None:
        stack.close()


# ---- saving


def _before_saving(wrapped, prefix, keep_vars):
    _open(wrapped, writeback=False)


def _after_saving(wrapped, state, prefix, metadata):
    """Names lose the wrapper's part; tensors become what the kind of state asks for."""
    group, config, kind = _group(wrapped), wrapped._state_dict_config, wrapped._state_dict_type
    inner = prefix + WRAPPED
    own = {prefix + plain(place[2]) for view in group.views for place in view.places} if group else set()
    drops = kind is StateDictType.FULL_STATE_DICT and config.rank0_only and wrapped.rank != 0
    renamed = [(key, prefix + key[len(inner) :]) for key in list(state) if key.startswith(inner)]
    for key, name in renamed:
        value = state.pop(key)
        if name == prefix + FLAT or (_is_local(wrapped) and name in own):
            continue  # in a local state the flat piece stands for all of them
        if name in own:
            if kind is StateDictType.SHARDED_STATE_DICT and value.dim():
                value = cut(value, mesh_of(wrapped), config.offload_to_cpu)
            elif not wrapped._summoned:
                value = value.detach().clone()
        if config.offload_to_cpu and isinstance(value, mica.Tensor) and value.device.type != "cpu":
            value = value.cpu()
        if not drops:
            state[name] = value
    if _is_local(wrapped) and group is not None:
        from mica.distributed.tensor import DTensor, Shard

        piece = group.flat.detach().clone()
        state[prefix + FLAT] = (
            piece if group.size == 1 else DTensor.from_local(piece, _shards(wrapped), [Shard(0)], run_check=False)
        )
    _close(wrapped)
    return state


def _shards(wrapped):
    mesh = mesh_of(wrapped)
    return mesh if mesh.ndim == 1 else mesh[mesh.mesh_dim_names[-1]]


# ---- loading


def _before_loading(wrapped, state, prefix, metadata, strict, missing, unexpected, errors):
    group, inner = _group(wrapped), prefix + WRAPPED
    _open(wrapped, writeback=True)
    for key in [key for key in state if key.startswith(prefix) and not key.startswith(inner)]:
        value = state.pop(key)
        name = key[len(prefix) :]
        if _is_local(wrapped) and group is not None and name == FLAT:
            piece = value.to_local() if hasattr(value, "to_local") else value
            if piece.shape != group.flat.shape:
                errors.append(f"{key}: a piece of {tuple(piece.shape)} is not one of {tuple(group.flat.shape)}")
                continue
            with mica.no_grad():
                group.flat.data.copy_(piece)
            if not group.use_orig_params:
                state[inner + FLAT] = group.flat.detach()
            continue
        if hasattr(value, "full_tensor") and not _is_local(wrapped):
            value = value.full_tensor()
        state[inner + name] = value
    if _is_local(wrapped) and group is not None and group.use_orig_params:
        group.use_pieces()
        for view in group.views:  # the piece is in its place: each parameter learns which part it has
            for _, _, name in view.places:
                state[inner + plain(name)] = view.parameter.detach()


def _after_loading(wrapped, keys):
    _close(wrapped)
