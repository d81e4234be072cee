"""fully_shard: a module whose parameters, gradients and optimizer state are spread over processes (FSDP2)."""

import functools

import mica
from mica.autograd import Function, Variable
from mica.distributed.fsdp._parameters import ParameterGroup
from mica.distributed.fsdp._policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from mica.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method", "share_comm_ctx"]


def _state_of(module):
    return module.__dict__.get("_fsdp_state")


class _Run:
    """What the sharded modules under one root share."""

    def __init__(self, root):
        self.root = root
        self.order = []  # the order of this forward pass: backward gathers in reverse
        self.last_order = []
        self.reducing = []  # states whose gradients are being sent: few, since each holds its whole gradients
        self.ends_later = False  # whether a callback waits for the end of this backward pass
        self.is_last_backward = True


class _AfterBackward(Function):
    """Passes a module's inputs on; its backward runs when the module's own backward is over."""

    @staticmethod
    def forward(ctx, state, *inputs):
        ctx.state = state
        return inputs

    @staticmethod
    def backward(ctx, *gradients):
        ctx.state.after_backward()
        return None, *gradients


class _State:
    """A sharded module: what its hooks do."""

    def __init__(self, module, group, policy, reshard):
        self.module, self.group, self.policy, self.reshard = module, group, policy, reshard
        # The modules of a list that is sharded together, and those that have yet to run.
        self.modules, self.to_run = [module], set()
        self.reshard_after_backward = self.gathers_in_backward = True
        self.run = None
        self.forward_prefetch, self.backward_prefetch = [], []
        self.in_backward = False
        self.prefetches = True  # whether backward gathers for the next module in advance

    def all_modules(self):
        """The module, or the modules of a list, with those inside."""
        for each in self.modules:
            yield from each.modules()

    # ---- forward -------------------------------------------------------------------------------------------------

    def find_root(self):
        """The module that is called first is the root of the sharded modules in it."""
        if self.run is not None:
            return
        self.run = _Run(self)
        for module in self.all_modules():
            state = _state_of(module)
            if state is not None and state is not self:
                state.run = self.run  # even if the module was called by itself before
                if state.reshard is None:
                    state.reshard = True
        if self.reshard is None:
            self.reshard = False  # because backward begins with this module

    def casts_inputs(self):
        return self.policy.cast_forward_inputs

    def before_forward(self, module, args, kwargs):
        self.find_root()
        if self.run.root is self:
            self.run.last_order, self.run.order = self.run.order, []
        if self.in_backward:  # a checkpoint computes forward again
            self.group and self.group.gather()
            return args, kwargs
        if self.policy.param_dtype is not None and self.casts_inputs():
            args, kwargs = tree_map(functools.partial(_cast, self.policy.param_dtype), (args, kwargs))
        if self.group is not None:
            self.group.gather(forward=True)
        for state in self.forward_prefetch:
            state.group and state.group.start_gathering(forward=True)
        return self._watch_inputs(args, kwargs)

    def _watch_inputs(self, args, kwargs):
        if not mica.is_grad_enabled() or self.group is None:
            return args, kwargs
        leaves, spec = tree_flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, mica.Tensor) and leaf.requires_grad]
        if places:
            passed = _AfterBackward.apply(self, *[leaves[i] for i in places])
            for i, tensor in zip(places, passed, strict=True):
                leaves[i] = tensor
        return tree_unflatten(leaves, spec)

    def after_forward(self, module, args, kwargs, output):
        if self.in_backward:
            return output
        self.run.order.append(self)
        if self.group is not None and self.reshard:
            self.group.scatter()
        if mica.is_grad_enabled():
            for leaf in tree_flatten(output)[0]:
                if isinstance(leaf, mica.Tensor) and leaf.requires_grad:
                    leaf.register_hook(self._hook)
        if self.policy.output_dtype is not None:
            output = tree_map(functools.partial(_cast, self.policy.output_dtype), output)
        return output

    def before_forward_of_list(self, module, args, kwargs):
        """Of modules that are sharded together the first one to run gathers for all."""
        if self.to_run:
            return args, kwargs
        self.to_run = set(self.modules)
        return self.before_forward(module, args, kwargs)

    def after_forward_of_list(self, module, args, kwargs, output):
        self.to_run.discard(module)
        return output if self.to_run else self.after_forward(module, args, kwargs, output)

    # ---- backward ------------------------------------------------------------------------------------------------

    def _hook(self, gradient):
        self.before_backward()
        return gradient

    def before_backward(self):
        run = self.run
        if not run.ends_later:
            run.ends_later = True
            Variable._execution_engine.queue_callback(run.root.end_backward)
        if self.in_backward:
            return
        self.in_backward = True
        if self.group is None:
            return
        if self.gathers_in_backward:
            self.group.gather()
        if self.backward_prefetch:
            following = self.backward_prefetch
        else:
            at = run.order.index(self) if self in run.order else 0
            following = run.order[at - 1 : at] if at and self.prefetches else []
        for state in following:
            if state.group is not None and not state.in_backward:
                state.group.start_gathering()

    def after_backward(self):
        """The gradients of this module's parameters are complete."""
        if not self.in_backward or self.group is None:
            return
        self.in_backward = False
        self.group.finish_reducing()  # from an earlier use of the module in this pass
        self.group.start_reducing()
        if self.reshard_after_backward:
            self.group.scatter()
        self.run.reducing.append(self)
        while len(self.run.reducing) > 1:
            self.run.reducing.pop(0).group.finish_reducing()

    def end_backward(self):
        """Backward is over: modules whose inputs needed no gradient have yet to be reduced."""
        states = [state for state in map(_state_of, self.all_modules()) if state is not None]
        for state in states:
            state.after_backward()
            state.in_backward = False
        if self.run.is_last_backward:
            for state in states:
                if state.group is not None:
                    state.group.finish_reducing()
                    if state.reshard_after_backward:
                        state.group.scatter()
        self.run.reducing.clear()
        self.run.ends_later = False


def _cast(dtype, value):
    return value.to(dtype) if isinstance(value, mica.Tensor) and value.is_floating_point() else value


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
        """A new module of such a class is of the class that was sharded."""
        return cls.__mro__[2](*args, **kwargs)

    def _get_fsdp_state(self):
        return _state_of(self)

    def _inner_states(self, recurse=True):
        modules = self.modules() if recurse else [self]
        return [state for state in map(_state_of, modules) if state is not None]

    def reshard(self):
        """Gives the memory of whole parameters back."""
        state = _state_of(self)
        if state.group is not None:
            state.group.scatter()

    def unshard(self, async_op=False):
        """Gathers the parameters of this module; with `async_op` a handle to wait for."""
        group = _state_of(self).group
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
        _state_of(self).gathers_in_backward = unshard_in_backward

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
        if _state_of(self).group is not None:
            _state_of(self).group.all_reduce_hook = hook

    def set_modules_to_forward_prefetch(self, modules):
        """The modules whose parameters are gathered while this one computes forward."""
        _state_of(self).forward_prefetch = [_state_of(module) for module in modules]

    def set_modules_to_backward_prefetch(self, modules):
        """The modules whose parameters are gathered while this one computes backward."""
        _state_of(self).backward_prefetch = [_state_of(module) for module in modules]

    def set_gradient_divide_factor(self, factor):
        """Gradients are summed and divided by this, in place of the mean."""
        group = _state_of(self).group
        if group is not None:
            group.divide_factor = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor


_classes = {}


def fully_shard(
    module, *, mesh=None, reshard_after_forward=None, shard_placement_fn=None, mp_policy=None, offload_policy=None,
    ignored_params=None,
):  # fmt: skip
    """Spread the parameters of a module over processes; modules inside that are sharded already keep theirs.

    Modules of a list are sharded together: the first one that computes gathers the parameters of all. Before the module computes, in forward and in backward, its parameters are gathered; after it their memory is given
    back (after forward only with `reshard_after_forward`, by default for all but the root). Gradients are averaged, and
    each process gets its piece. The optimizer is made after this, with the pieces.
    """
    from mica.distributed.device_mesh import init_device_mesh

    modules = [module] if isinstance(module, mica.nn.Module) else list(module)
    for each in modules:
        if type(each) in (mica.nn.ModuleList, mica.nn.ModuleDict):
            raise ValueError(f"fully_shard does not support containers that do not implement forward: {each}")
        if _state_of(each) is not None:
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
    state = _State(modules[0], group, policy, reshard_after_forward)
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
    state = _state_of(module)
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
            if _state_of(child) is None:
                visit(child)

    for module in modules:
        visit(module)
    return list(found.values())


def register_fsdp_forward_method(module, method_name):
    """Let another method than forward gather and scatter as forward does."""
    if not isinstance(module, FSDPModule):
        return
    original = getattr(module, method_name)
    state = _state_of(module)

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
