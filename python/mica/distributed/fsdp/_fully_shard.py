"""fully_shard: a module whose parameters, gradients and optimizer state are spread over processes (FSDP2)."""

import functools

import mica
from mica.distributed.fsdp._parameters import ParameterGroup
from mica.distributed.fsdp._passes import ShardedState, state_of
from mica.distributed.fsdp._policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method", "share_comm_ctx"]


class UnshardHandle:
    """Parameters that are being gathered."""

    def __init__(self, group):
        self._group = group

    def wait(self):
        if self._group is not None:
            self._group.gather()
            self._group = None


class FSDPModule:
    """What fully_shard adds to a module's class."""

    def __new__(cls, *args, **kwargs):
        """Make a new module of the class that was sharded: only modules that fully_shard gets are sharded."""
        return cls.__mro__[2](*args, **kwargs)

    def _get_fsdp_state(self):
        return state_of(self)

    def _inner_states(self, recurse=True):
        modules = self.modules() if recurse else [self]
        return [state for state in map(state_of, modules) if state is not None]

    def reshard(self):
        """Gives the memory of whole parameters back."""
        state = state_of(self)
        if state.group is not None:
            state.group.scatter()

    def unshard(self, async_op=False):
        """Gathers the parameters of this module; with `async_op` a handle to wait for."""
        group = state_of(self).group
        if group is not None:
            group.start_gathering()
        handle = UnshardHandle(group)
        if async_op:
            return handle
        handle.wait()
        return None

    def set_is_last_backward(self, is_last_backward):
        """Whether gradients are waited for at the end of the next backward pass."""
        for state in self._inner_states():
            state.find_root()
            state.run.is_last_backward = is_last_backward

    def set_requires_gradient_sync(self, requires_gradient_sync, *, recurse=True):
        """Whether gradients are reduced, or kept whole on each process to add up."""
        for state in self._inner_states(recurse):
            if state.group is not None:
                state.group.syncs = state.group.reduces_replicas = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce, *, recurse=True):
        """Whether gradients are reduced over the replicas of a mesh of two dimensions."""
        for state in self._inner_states(recurse):
            if state.group is not None:
                state.group.reduces_replicas = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward, recurse=True):
        for state in self._inner_states(recurse):
            state.reshard, keeps = _kept_after_forward(reshard_after_forward, state.group and state.group.mesh)
            if state.group is not None:
                state.group.keeps = keeps

    def set_reshard_after_backward(self, reshard_after_backward, *, recurse=True):
        for state in self._inner_states(recurse):
            state.reshard_after_backward = reshard_after_backward

    def set_unshard_in_backward(self, unshard_in_backward):
        """Whether backward gathers the parameters: it need not where it does not use them, as that of an embedding."""
        state_of(self).gathers_in_backward = unshard_in_backward

    def reset_iter_state(self):
        """Forgets a pass that an error has ended, so that the next one begins anew."""
        for state in self._inner_states():
            state.in_backward, state.to_run = False, set()
            if state.run is not None:
                state.run.ends_later, state.run.reducing = False, []
            if state.group is not None:
                state.group.forget()

    def set_all_reduce_hook(self, hook, *, stream=None):
        """Call a function on each reduced gradient, in place of nothing, or after the reduction over replicas."""
        if state_of(self).group is not None:
            state_of(self).group.all_reduce_hook = hook

    def set_modules_to_forward_prefetch(self, modules):
        """The modules whose parameters are gathered while this one computes forward."""
        state_of(self).forward_prefetch = [state_of(module) for module in modules]

    def set_modules_to_backward_prefetch(self, modules):
        """The modules whose parameters are gathered while this one computes backward."""
        state_of(self).backward_prefetch = [state_of(module) for module in modules]

    def set_gradient_divide_factor(self, factor):
        """Gradients are summed and divided by this, in place of the mean."""
        group = state_of(self).group
        if group is not None:
            group.divide_factor = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor


_classes = {}


def fully_shard(
    module, *, mesh=None, reshard_after_forward=None, shard_placement_fn=None, mp_policy=None, offload_policy=None,
    ignored_params=None,
):  # fmt: skip
    """Spread the parameters of a module over processes; modules inside that are sharded already keep theirs.

    Before the module computes, in forward and in backward, its parameters are gathered. Afterwards their memory is given
    back (after forward only with `reshard_after_forward`, by default for all but the root). Gradients are averaged, and
    each process gets its piece. Make the optimizer after this call, with the pieces.

    Args:
        module: the module, or a list of modules that are sharded together: the first that computes gathers for all
        mesh: the processes; all of the world if it is not given. With two dimensions, the first has replicas
        reshard_after_forward: whether whole parameters are given up after forward; an integer keeps them among so many
            processes
        shard_placement_fn: says along which dimension a parameter is cut
        mp_policy: the dtypes of parameters, reductions and outputs
        offload_policy: whether pieces live in the memory of the CPU
        ignored_params: parameters that stay as they are

    Example::

        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
    """
    from mica.distributed.device_mesh import init_device_mesh

    modules = [module] if isinstance(module, mica.nn.Module) else list(module)
    for each in modules:
        if type(each) in (mica.nn.ModuleList, mica.nn.ModuleDict):
            raise ValueError(f"fully_shard does not support containers that do not implement forward: {each}")
        if state_of(each) is not None:
            raise AssertionError(f"fully_shard has been called on this module before: {type(each).__name__}")
    if not modules:
        raise ValueError("fully_shard needs at least one module")
    device = _compute_device(modules)
    if mesh is None:
        mesh = init_device_mesh(device.type, (mica.distributed.get_world_size(),))
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    policy, offload = mp_policy or MixedPrecisionPolicy(), isinstance(offload_policy, CPUOffloadPolicy)
    if offload_policy is not None and not isinstance(offload_policy, OffloadPolicy):
        raise TypeError(f"offload_policy must be an OffloadPolicy, got {type(offload_policy).__name__}")
    reshard_after_forward, keeps = _kept_after_forward(reshard_after_forward, mesh)
    owned = _owned_parameters(modules, set(ignored_params or ()))
    dim_of = None if shard_placement_fn is None else functools.partial(_chosen_dim, shard_placement_fn)
    group = ParameterGroup(owned, mesh, policy, offload, device, dim_of, keeps) if owned else None
    state = ShardedState(modules[0], group, policy, reshard_after_forward)
    state.modules = modules
    alone = len(modules) == 1
    for each in modules:
        each.__dict__["_fsdp_state"] = state
        before, after = (
            (state.before_forward, state.after_forward)
            if alone
            else (state.before_forward_of_list, state.after_forward_of_list)
        )
        each.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
        each.register_forward_hook(after, prepend=False, with_kwargs=True)
        each.register_state_dict_pre_hook(_scatter_for_state_dict)
        each._register_load_state_dict_pre_hook(lambda *_, each=each: _scatter_for_state_dict(each))
        cls = type(each)
        if cls not in _classes:
            _classes[cls] = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__deepcopy__": _no_deepcopy})
        each.__class__ = _classes[cls]
    return module


def _no_deepcopy(module, memo):
    raise AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.")


def _chosen_dim(choose, parameter):
    placement = choose(parameter)
    if placement is None:
        return 0
    if not getattr(placement, "is_shard", lambda: False)():
        raise AssertionError(f"shard_placement_fn must give a Shard or None, not {placement!r}")
    return placement.dim


def _kept_after_forward(wanted, mesh):
    """(whether parameters are cut after forward, (group, number of pieces) if it has fewer processes than the mesh)"""
    if isinstance(wanted, (bool, type(None))):
        return wanted, None
    size = mesh.size(mesh.ndim - 1)
    if not isinstance(wanted, int) or not 1 <= wanted <= size or size % wanted:
        raise ValueError(
            f"If passing reshard_after_forward as an integer, it should be a factor of {size}, not {wanted}"
        )
    if wanted in (1, size):
        return wanted == size, None
    groups = mesh._get_root_mesh().__dict__.setdefault("_groups_of_few", {})
    if (mesh._dims, wanted) not in groups:
        mine = None
        for ranks in mesh._rank_lists(mesh._dims[-1]):
            for first in range(0, size, wanted):
                made = mica.distributed.new_group(ranks[first : first + wanted])
                mine = made if mica.distributed.get_rank() in ranks[first : first + wanted] else mine
        groups[mesh._dims, wanted] = (mine, wanted)
    return True, groups[mesh._dims, wanted]


def _scatter_for_state_dict(module, *_):
    """A state is of pieces."""
    state = state_of(module)
    if state is not None and state.group is not None:
        state.group.scatter()


def _compute_device(modules):
    for parameter in (parameter for module in modules for parameter in module.parameters()):
        if parameter.device.type == "cuda":
            return mica.device("cuda", mica.cuda.current_device())
        if parameter.device.type != "meta":
            return parameter.device
    return mica.device("cuda", mica.cuda.current_device()) if mica.cuda.is_available() else mica.device("cpu")


def _owned_parameters(modules, ignored):
    """Parameters of the modules that no sharded module inside has: each once, with all its places."""
    found = {}

    def visit(inside):
        for name, parameter in inside._parameters.items():
            if parameter is None or parameter in ignored:
                continue
            if parameter.dim() == 0:
                raise ValueError(
                    f"fully_shard doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to 1."
                )
            found.setdefault(id(parameter), (parameter, []))[1].append((inside, name))
        for child in inside.children():
            if state_of(child) is None:
                visit(child)

    for module in modules:
        visit(module)
    return list(found.values())


def register_fsdp_forward_method(module, method_name):
    """Let another method than forward gather and scatter as forward does."""
    if not isinstance(module, FSDPModule):
        return
    original = getattr(module, method_name)
    state = state_of(module)

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        args, kwargs = state.before_forward(module, args, kwargs)
        return state.after_forward(module, args, kwargs, original(*args, **kwargs))

    setattr(module, method_name, wrapped)


def share_comm_ctx(modules):
    """Let several roots wait for each other's messages as one: here they always do, as messages have no streams."""
    for module in modules:
        if not isinstance(module, FSDPModule):
            raise ValueError(f"Expects list of FSDPModules but got {type(module)}")
