"""FullyShardedDataParallel: a module around another one whose parameters are spread over processes (FSDP1)."""

import contextlib
import itertools
import math
import warnings

import mica
from mica import nn
from mica.distributed.fsdp import _flat_optimizer_states as optimizer_states
from mica.distributed.fsdp._flat_optimizer_states import OptimStateKeyType
from mica.distributed.fsdp._flat_parameters import FlatGroup
from mica.distributed.fsdp._flat_setup import HYBRID, groups_for, ignored_of, move, owned_parameters
from mica.distributed.fsdp._flat_states import CONFIGS, OPTIM_CONFIGS, plain, register_state_hooks, settings_of
from mica.distributed.fsdp._passes import ShardedState
from mica.distributed.fsdp._policies import MixedPrecisionPolicy
from mica.distributed.fsdp.api import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from mica.distributed.fsdp.wrap import _auto_wrap

__all__ = [
    "BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "FullyShardedDataParallel",
    "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision", "OptimStateDictConfig", "OptimStateKeyType",
    "ShardedOptimStateDictConfig", "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig", "StateDictSettings",
    "StateDictType",
]  # fmt: skip

FLAT_PARAM = "_flat_param"
_WHOLE_AFTER_FORWARD = (
    ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2, ShardingStrategy.NO_SHARD,
)  # fmt: skip


class _FlatState(ShardedState):
    """The state of a wrapped module; the root casts its inputs by an option of its own."""

    def casts_inputs(self):
        if self.mixed is None:
            return False
        return self.mixed.cast_root_forward_inputs if self.run.root is self else self.mixed.cast_forward_inputs


class FullyShardedDataParallel(nn.Module):
    """Spreads the parameters of a module over processes; modules inside that are wrapped already keep theirs.

    Before the module computes its parameters are gathered into one flat tensor, of which they are views; afterwards its
    memory is given back. With an `auto_wrap_policy` modules inside are wrapped first.
    """

    def __init__(
        self, module, process_group=None, sharding_strategy=None, cpu_offload=None, auto_wrap_policy=None,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE, mixed_precision=None, ignored_modules=None, param_init_fn=None,
        device_id=None, sync_module_states=False, forward_prefetch=False, limit_all_gathers=True, use_orig_params=False,
        ignored_states=None, device_mesh=None,
    ):  # fmt: skip
        super().__init__()
        if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            warnings.warn(
                f"FSDP will not all-gather parameters for containers that do not implement forward: {module}",
                stacklevel=2,
            )
        if mixed_precision is not None and mixed_precision.keep_low_precision_grads:
            raise NotImplementedError(
                "MixedPrecision(keep_low_precision_grads=True) is not in Mica: a gradient has its parameter's dtype"
            )
        wrapper = FullyShardedDataParallel
        ignored, ignored_parameters = ignored_of(module, ignored_modules, ignored_states, wrapper)
        self.sharding_strategy = strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        self._device_mesh = device_mesh
        self.process_group, self._inter_node_pg = groups_for(process_group, strategy, device_mesh)
        if auto_wrap_policy is not None:
            hybrid = strategy in HYBRID and device_mesh is None
            options = {
                "process_group": (self.process_group, self._inter_node_pg) if hybrid else process_group,
                "sharding_strategy": sharding_strategy, "cpu_offload": cpu_offload,
                "backward_prefetch": backward_prefetch, "mixed_precision": mixed_precision,
                "param_init_fn": param_init_fn, "device_id": device_id, "sync_module_states": sync_module_states,
                "forward_prefetch": forward_prefetch, "limit_all_gathers": limit_all_gathers,
                "use_orig_params": use_orig_params, "ignored_states": ignored_parameters, "device_mesh": device_mesh,
            }  # fmt: skip
            _auto_wrap(module, auto_wrap_policy, ignored, ignored_parameters, options, wrapper)
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self.cpu_offload, self.mixed_precision = cpu_offload or CPUOffload(), mixed_precision or MixedPrecision()
        self._use_orig_params, self._ignored_params, self._ignored_modules = (
            use_orig_params,
            ignored_parameters,
            ignored,
        )
        self.limit_all_gathers, self.forward_prefetch, self.backward_prefetch = (
            limit_all_gathers,
            forward_prefetch,
            backward_prefetch,
        )
        self._fsdp_wrapped_module = module
        device = move(module, device_id, param_init_fn, ignored, ignored_parameters, wrapper)
        self.compute_device = device
        owned = owned_parameters(module, ignored, ignored_parameters, wrapper)
        if sync_module_states:
            self._sync(module, [parameter for parameter, _ in owned])
        mixed = mixed_precision
        policy = MixedPrecisionPolicy(mixed and mixed.param_dtype, mixed and mixed.reduce_dtype)
        group = None
        if owned:
            shards = None if strategy is ShardingStrategy.NO_SHARD else self.process_group
            replicas = self.process_group if strategy is ShardingStrategy.NO_SHARD else self._inter_node_pg
            offload = self.cpu_offload.offload_params
            group = FlatGroup(module, owned, shards, replicas, policy, offload, device, use_orig_params)
        state = _FlatState(self, group, policy, strategy not in _WHOLE_AFTER_FORWARD)
        state.mixed, state.prefetches = mixed, backward_prefetch is not None
        self.__dict__["_fsdp_state"] = state
        if mixed is not None and mixed.buffer_dtype is not None:
            self._cast_buffers(module, mixed.buffer_dtype)
        self._state_dict_type = StateDictType.FULL_STATE_DICT
        self._state_dict_config, self._optim_state_dict_config = FullStateDictConfig(), FullOptimStateDictConfig()
        self._summoned = False
        register_state_hooks(self)

    def _cast_buffers(self, module, dtype):
        for inside in module.modules():
            for name, buffer in inside._buffers.items():
                if buffer is not None and buffer.is_floating_point() and inside not in self._ignored_modules:
                    inside._buffers[name] = buffer.to(dtype)

    def _sync(self, module, parameters):
        from mica.distributed.module_states import broadcast_coalesced

        wrapped = {
            b for inside in module.modules() if isinstance(inside, FullyShardedDataParallel) for b in inside.buffers()
        }
        tensors = [*parameters, *(buffer for buffer in module.buffers() if buffer not in wrapped)]
        broadcast_coalesced(tensors, 0, self.process_group)
        if self._inter_node_pg is not None:
            broadcast_coalesced(tensors, 0, self._inter_node_pg)

    # ---- as the module inside

    @property
    def module(self):
        """The module that is wrapped."""
        inside = self._fsdp_wrapped_module
        return getattr(inside, "_checkpoint_wrapped_module", inside)

    @property
    def _flat_param(self):
        group = self._fsdp_state.group
        return group.flat if group is not None else None

    @property
    def _has_params(self):
        return self._fsdp_state.group is not None

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_fsdp_wrapped_module":
                raise
            return getattr(self._fsdp_wrapped_module, name)

    def __getitem__(self, key):
        return self._fsdp_wrapped_module[key]

    def forward(self, *args, **kwargs):
        """The module's forward pass, with whole parameters."""
        state = self._fsdp_state
        args, kwargs = state.before_forward(self, args, kwargs)
        if state.group is not None and not state.in_backward:
            state.group.use_views()  # after the inputs, so that backward ends with the node that watches them
        if state.run.root is state and self.forward_prefetch:
            _prefetch_in_order(state)
        return state.after_forward(self, args, kwargs, self._fsdp_wrapped_module(*args, **kwargs))

    def check_is_root(self):
        """Whether this is the outermost of the wrapped modules."""
        self._fsdp_state.find_root()
        return self._fsdp_state.run.root is self._fsdp_state

    @property
    def _is_root(self):
        run = self._fsdp_state.run
        return None if run is None else run.root is self._fsdp_state

    @staticmethod
    def fsdp_modules(module, root_only=False):
        """The wrapped modules in a module, itself included; or only those that no other one holds."""
        found = [inside for inside in module.modules() if isinstance(inside, FullyShardedDataParallel)]
        if not root_only:
            return found
        inner = {below for each in found for below in each.modules() if below is not each}
        return [each for each in found if each not in inner]

    def apply(self, fn):
        """Apply a function to all modules inside, whose parameters are whole meanwhile."""
        with FullyShardedDataParallel.summon_full_params(self, recurse=False, writeback=True):
            return super().apply(fn)

    def _apply(self, *args, **kwargs):
        group = self._fsdp_state.group
        if group is not None:
            group.scatter()
        made = super()._apply(*args, **kwargs)
        if group is not None:
            if not group.use_orig_params:
                group.flat, group.dtype = self._fsdp_wrapped_module._parameters[FLAT_PARAM], group.flat.dtype
            else:
                group.take_changes()
                group.use_pieces()
            group.dtype = group.flat.dtype
        return made

    def named_parameters(self, *args, **kwargs):
        """Names and parameters; within summon_full_params names are those of the module without wrappers."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield (plain(name) if self._summoned else name), parameter

    def named_buffers(self, *args, **kwargs):
        """Names and buffers; within summon_full_params names are those of the module without wrappers."""
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield (plain(name) if self._summoned else name), buffer

    # ---- gradients

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients are kept whole on each process, to add up, while this lasts."""
        groups = [state.group for state in map(_state, self.fsdp_modules(self)) if state.group is not None]
        before = [group.syncs for group in groups]
        for group in groups:
            group.syncs = False
        try:
            yield
        finally:
            for group, syncs in zip(groups, before, strict=True):
                group.syncs = syncs

    @mica.no_grad()
    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        """Scale the gradients so that the norm of all of them, on all processes, is at most `max_norm`. Returns the norm."""
        if not self.check_is_root():
            raise RuntimeError("`clip_grad_norm_()` should only be called on the root FSDP instance")
        norm_type, seen, cut, whole = float(norm_type), set(), [], []
        for inside in self.fsdp_modules(self):
            group = _state(inside).group
            if group is not None:
                mine = [view.parameter for view in group.views] if group.use_orig_params else [group.flat]
                seen.update(map(id, mine))
                (cut if group.size > 1 else whole).extend(p.grad for p in mine if p.grad is not None)
        whole += [p.grad for p in self.parameters() if id(p) not in seen and p.grad is not None]
        gradients = cut + whole
        if not gradients:
            warnings.warn(f"Called FSDP.clip_grad_norm_() on rank {self.rank} with no gradients", stacklevel=2)
        norm = _norm_of(cut, whole, norm_type, self.process_group, self.compute_device)
        scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale.to(gradient.device, gradient.dtype))
        dtypes = {gradient.dtype for gradient in gradients}
        return norm.to(next(iter(dtypes))) if len(dtypes) == 1 else norm

    def register_comm_hook(self, state, hook):
        """Let a function send gradients: hook(state, gradient, piece), or hook(state, gradient) where nothing is cut."""
        if not self.check_is_root():
            raise AssertionError("register_comm_hook can only be called on a root instance.")
        for inside in self.fsdp_modules(self):
            group = _state(inside).group
            if group is not None:
                if group.comm_hook is not None:
                    raise AssertionError("A communication hook is already registered")
                if group.replicas is not None and group.size > 1:
                    raise AssertionError("Communication hook is currently not available for hybrid strategies")
                group.comm_hook = (state, hook)

    # ---- whole parameters, and states

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module, recurse=True, writeback=True, rank0_only=False, offload_to_cpu=False, with_grads=False
    ):
        """A block in which parameters are whole. With `writeback` changes of them are kept afterwards."""
        if writeback and rank0_only:
            raise NotImplementedError("writeback=True and rank0_only=True is not supported")
        if offload_to_cpu and not rank0_only:
            warnings.warn("offload_to_cpu=True and rank0_only=False may result in redundant copies", stacklevel=3)
        modules = FullyShardedDataParallel.fsdp_modules(module)
        if not recurse:
            modules = [each for each in modules if each is module]
        with contextlib.ExitStack() as stack:
            for each in modules:
                group = _state(each).group
                if with_grads and group is not None and not group.use_orig_params:
                    raise NotImplementedError("with_grads=True is only supported with use_orig_params=True")
                if group is not None:
                    here = not rank0_only or each.rank == 0
                    stack.enter_context(group.as_whole(writeback, here, offload_to_cpu, with_grads))
                stack.callback(setattr, each, "_summoned", each._summoned)
                each._summoned = True
            yield

    @staticmethod
    def set_state_dict_type(module, state_dict_type, state_dict_config=None, optim_state_dict_config=None):
        """Set the kind of state that the wrapped modules in a module save and load. Returns the settings before."""
        config = state_dict_config or CONFIGS[state_dict_type]()
        optim_config = optim_state_dict_config or OPTIM_CONFIGS[state_dict_type]()
        for given, wanted in ((config, CONFIGS), (optim_config, OPTIM_CONFIGS)):
            if type(given) is not wanted[state_dict_type]:
                raise RuntimeError(
                    f"Expected state_dict_config of type {wanted[state_dict_type]} but got {type(given)}"
                )
        before = None
        for each in FullyShardedDataParallel.fsdp_modules(module):
            before = before or FullyShardedDataParallel.get_state_dict_type(each)
            each._state_dict_type, each._state_dict_config = state_dict_type, config
            each._optim_state_dict_config = optim_config
        if before is None:
            raise RuntimeError("The module has no FullyShardedDataParallel in it")
        return before

    get_state_dict_type = staticmethod(settings_of)

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(module, state_dict_type, state_dict_config=None, optim_state_dict_config=None):
        """set_state_dict_type while this lasts."""
        now = FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            FullyShardedDataParallel.set_state_dict_type(
                module, now.state_dict_type, now.state_dict_config, now.optim_state_dict_config
            )

    # ---- states of optimizers

    optim_state_dict = staticmethod(optimizer_states.optim_state_dict)
    optim_state_dict_to_load = staticmethod(optimizer_states.optim_state_dict_to_load)
    full_optim_state_dict = staticmethod(optimizer_states.full_optim_state_dict)
    sharded_optim_state_dict = staticmethod(optimizer_states.sharded_optim_state_dict)
    shard_full_optim_state_dict = staticmethod(optimizer_states.shard_full_optim_state_dict)
    scatter_full_optim_state_dict = staticmethod(optimizer_states.scatter_full_optim_state_dict)
    flatten_sharded_optim_state_dict = staticmethod(optimizer_states.flatten_sharded_optim_state_dict)
    rekey_optim_state_dict = staticmethod(optimizer_states.rekey_optim_state_dict)


def _state(module):
    return module.__dict__["_fsdp_state"]


def _prefetch_in_order(root):
    """Each wrapped module gathers for the one that came after it in the last forward pass."""
    order = root.run.last_order
    for state, following in itertools.pairwise(order):
        state.forward_prefetch = [following]


def _norm_of(cut, whole, norm_type, group, device):
    from mica.distributed import ReduceOp, all_reduce

    def local(gradients):
        norms = [mica.linalg.vector_norm(gradient.float() if gradient.dtype.itemsize < 4 else gradient, norm_type).to(device)
                 for gradient in gradients if gradient.numel()]  # fmt: skip
        return mica.linalg.vector_norm(mica.stack(norms), norm_type) if norms else None

    ours, others = local(cut), local(whole)
    kind = next((each for each in (ours, others) if each is not None), mica.zeros((), device=device))
    total = mica.zeros_like(kind) if ours is None else ours
    if norm_type == math.inf:
        all_reduce(total, ReduceOp.MAX, group)
        return total if others is None else mica.maximum(total, others)
    total = total**norm_type
    all_reduce(total, group=group)
    if others is not None:
        total = total + others**norm_type
    return total ** (1 / norm_type)
