"""A module in several processes, each with a part of the batch: gradients are averaged while backward runs."""

import contextlib
import dataclasses

import mica
from mica import _C
from mica.distributed.algorithms.join import Join, Joinable, JoinHook
from mica.nn.modules.module import Module

__all__ = ["DistributedDataParallel"]


@dataclasses.dataclass
class _MixedPrecision:
    """The dtypes in which a DistributedDataParallel computes, reduces gradients and holds buffers."""

    param_dtype: object = None
    reduce_dtype: object = None
    buffer_dtype: object = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = True
    cast_root_forward_inputs: bool = True


class _Ended(JoinHook):
    """Answers the collectives of processes that still have inputs."""

    def __init__(self, ddp, divide_by_initial_world_size):
        self.ddp, self.ddp._divide_by_initial_world_size = ddp, divide_by_initial_world_size

    def main_hook(self):
        ddp = self.ddp
        ddp._reducer.rebuild()
        if ddp._syncs_buffers():
            ddp._sync_buffers(ddp._agree_on_rank(False))
        ddp.require_forward_param_sync = ddp._any_syncs(False)
        if ddp.require_forward_param_sync:
            ddp._reducer.reduce_zeros()

    def post_hook(self, is_last_joiner):
        from mica.distributed.module_states import sync_module

        ddp = self.ddp
        sync_module(ddp.module, ddp.process_group, ddp._agree_on_rank(is_last_joiner), ddp.parameters_to_ignore)


class DistributedDataParallel(Module, Joinable):
    """Calls a module, and makes its gradients the mean over all processes of a group.

    Every process has a copy of the module; at the start all get rank 0's parameters. Gradients are gathered in buckets of
    `bucket_cap_mb`, in the order in which they come, and a full bucket is reduced while backward goes on.

    Args:
        module: the module of this process
        device_ids, output_device: the one GPU of this process, or None
        broadcast_buffers: whether all processes get rank 0's buffers before each forward pass
        process_group: the processes; all by default
        find_unused_parameters: whether the graph is searched for parameters that a pass does not reach
        gradient_as_bucket_view: whether gradients are views of the buckets, which saves a copy
        static_graph: whether all passes use the same parameters in the same way

    Example::

        model = DistributedDataParallel(nn.Linear(8, 8))
        model(x).sum().backward()  # the gradients are the mean over all processes
    """

    def __init__(
        self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True, init_sync=True,
        process_group=None, bucket_cap_mb=None, find_unused_parameters=False, check_reduction=False,
        gradient_as_bucket_view=False, static_graph=False, delay_all_reduce_named_params=None,
        param_to_hook_all_reduce=None, mixed_precision=None, device_mesh=None, skip_all_reduce_unused_params=False,
    ):  # fmt: skip
        from mica.distributed import get_rank, get_world_size
        from mica.distributed.world import _group

        super().__init__()
        Joinable.__init__(self)
        if (delay_all_reduce_named_params is None) != (param_to_hook_all_reduce is None):
            raise ValueError(
                "delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same time."
            )
        if delay_all_reduce_named_params is not None:
            raise NotImplementedError("DistributedDataParallel(delay_all_reduce_named_params=...) is not in Mica yet")
        if mixed_precision is not None and not isinstance(mixed_precision, _MixedPrecision):
            raise TypeError(f"mixed_precision must be a _MixedPrecision, got {type(mixed_precision).__name__}")
        if process_group is not None and device_mesh is not None:
            raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
        if device_mesh is not None:
            if device_mesh.ndim != 1:
                raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
            process_group = device_mesh.get_group(mesh_dim=0)
        self.process_group = _group(process_group)
        self.device_mesh = device_mesh
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = _trained(module, self.parameters_to_ignore)
        if not named:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
            )
        self.module = module
        self.device = next(iter(named.values())).device
        _check_devices(module, named, device_ids, output_device)
        self.dim, self.device_ids = dim, device_ids
        self.output_device = output_device if output_device is not None else (device_ids or [None])[0]
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.mixed_precision = mixed_precision
        self.skip_all_reduce_unused_params = skip_all_reduce_unused_params
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * 2**20)
        self._distributed_rank = get_rank(self.process_group)
        self._size = get_world_size(self.process_group)
        self._divide_by_initial_world_size = True
        self._hook_given = False
        self._reducer = None
        if self._size > 1:
            if init_sync:
                from mica.distributed.module_states import check_same_parameters, sync_module

                check_same_parameters(list(named.values()), list(named), self.process_group)
                sync_module(module, self.process_group, 0, self.parameters_to_ignore)
            self._make_reducer()

    def _make_reducer(self):
        from mica.distributed.reducer import Reducer

        named = _trained(self.module, self.parameters_to_ignore)
        sparse = {
            id(m.weight)
            for m in self.module.modules()
            if type(m).__name__ in ("Embedding", "EmbeddingBag") and getattr(m, "sparse", False)
        }
        parameters = list(named.values())
        mixed = self.mixed_precision
        self._reducer = Reducer(
            parameters, list(named), self.process_group, self.bucket_bytes_cap,
            sparse=[i for i, p in enumerate(parameters) if id(p) in sparse], find_unused=self.find_unused_parameters,
            static=self.static_graph, as_views=self.gradient_as_bucket_view,
            reduce_dtype=(mixed.reduce_dtype or mixed.param_dtype) if mixed else None,
            skip_unused=self.skip_all_reduce_unused_params,
        )  # fmt: skip

    def __getstate__(self):
        """The state to pickle, without the hooks and the memory of buckets, which are made anew."""
        state = dict(self.__dict__)
        for name in ("process_group", "_reducer"):
            del state[name]
        return state

    def __setstate__(self, state):
        from mica.distributed.world import _group

        super().__setstate__(state)
        self.process_group, self._reducer = _group(None), None
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        if self._size > 1:
            self._make_reducer()

    # ---- forward -------------------------------------------------------------------------------------------------

    def forward(self, *inputs, **kwargs):
        reducer = self._reducer
        trains = _C.is_grad_enabled() and self.require_backward_grad_sync
        if reducer is not None:
            self._before_forward(reducer, trains)
        if self.device_ids:
            inputs, kwargs = _to(self.device, None, inputs, kwargs)
        output = self._call(inputs, kwargs)
        if reducer is not None:
            self.require_forward_param_sync = trains
            if trains:
                tracks = self.find_unused_parameters and not self.static_graph
                reducer.prepare(_tensors_of(output) if tracks else [])
            else:
                reducer.expect_nothing()
        return output

    def _before_forward(self, reducer, trains):
        if trains:
            reducer.check_finished()
        notice = Join.notify_join_context(self)
        if notice is not None:
            reducer.join_work = notice
            reducer.divide_by_running = not self._divide_by_initial_world_size
        if _C.is_grad_enabled():
            reducer.rebuild()
        if self._syncs_buffers():
            joins = self._join_config.enable
            self._sync_buffers(self._agree_on_rank(True) if joins else 0)
        if self._join_config.enable:
            self._any_syncs(self.require_backward_grad_sync)

    def _call(self, inputs, kwargs):
        mixed = self.mixed_precision
        if mixed is None:
            return self.module(*inputs, **kwargs)
        cast = {
            name: tensor.to(mixed.param_dtype)
            for name, tensor in self.module.named_parameters()
            if mixed.param_dtype is not None and tensor.is_floating_point()
        }
        if mixed.buffer_dtype is not None:
            for buffer in self.module.buffers():
                if buffer.is_floating_point() and buffer.dtype is not mixed.buffer_dtype:
                    buffer.data = buffer.to(mixed.buffer_dtype)
        if mixed.param_dtype is not None and mixed.cast_forward_inputs:
            inputs, kwargs = _to(None, mixed.param_dtype, inputs, kwargs)
        return mica.func.functional_call(self.module, cast, inputs, kwargs)

    # ---- buffers -------------------------------------------------------------------------------------------------

    def _buffers_to_sync(self):
        return [b for name, b in self.module.named_buffers() if name not in self.parameters_to_ignore]

    def _syncs_buffers(self):
        return self.require_forward_param_sync and self.broadcast_buffers and bool(self._buffers_to_sync())

    def _sync_buffers(self, source):
        from mica.distributed.module_states import broadcast_coalesced

        broadcast_coalesced(self._buffers_to_sync(), source, self.process_group)

    # ---- control of when and how gradients are reduced -----------------------------------------------------------

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients of forward passes in a with block add up on each process and are not averaged."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state, hook):
        """Call hook(state, bucket) in every backward pass that synchronises: its future's result becomes the gradients."""
        from mica.distributed.gradient_buckets import check_hook

        check_hook(hook)
        if self._hook_given:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self._hook_given = True
        if self._reducer is None:
            self._make_reducer()
        self._reducer.hook = state, hook

    def _register_builtin_comm_hook(self, comm_hook_type):
        from mica.distributed.algorithms.ddp_comm_hooks import default_hooks

        names = {"ALLREDUCE": default_hooks.allreduce_hook, "FP16_COMPRESS": default_hooks.fp16_compress_hook}
        self.register_comm_hook(self.process_group, names[getattr(comm_hook_type, "name", comm_hook_type)])

    def _get_ddp_logging_data(self):
        """What is known of this module and its processes, by torch's names."""
        from mica.distributed import get_backend

        cap = self.bucket_bytes_cap
        return {
            "world_size": self._size, "rank": self._distributed_rank, "module_name": type(self.module).__name__,
            "backend_name": get_backend(self.process_group), "bucket_cap_bytes": cap, "device_ids": self.device_ids,
            "find_unused_parameters": self.find_unused_parameters, "broadcast_buffers": self.broadcast_buffers,
            "gradient_as_bucket_view": self.gradient_as_bucket_view, "static_graph": self.static_graph,
        }  # fmt: skip

    def _set_static_graph(self):
        """Declare, after the module was made, that the graph is the same in every pass."""
        self.static_graph = True
        if self._reducer is not None:
            self._reducer.static = True

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module, params_and_buffers_to_ignore):
        """These parameters and buffers of the module are each process's own."""
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore

    # ---- processes with different numbers of inputs --------------------------------------------------------------

    def join(self, divide_by_initial_world_size=True, enable=True, throw_on_early_termination=False):
        """A with block in which processes may end at different times."""
        if self._reducer is None and enable and self._size > 1:
            raise RuntimeError("join() needs a module whose gradients are reduced")
        return Join(
            [self],
            enable and self._size > 1,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **kwargs):
        return _Ended(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self):
        return self.device

    @property
    def join_process_group(self):
        return self.process_group

    def _any_syncs(self, this_one):
        """Whether a process that still runs synchronises in this round."""
        import mica
        from mica.distributed import all_reduce

        flag = mica.tensor([1.0 if this_one else 0.0], device=self.device)
        all_reduce(flag, group=self.process_group)
        return bool(flag.item())

    def _agree_on_rank(self, this_one):
        """The highest rank of those that say True."""
        import mica
        from mica.distributed import ReduceOp, all_reduce

        rank = mica.tensor([self._distributed_rank if this_one else -1], device=self.device)
        all_reduce(rank, ReduceOp.MAX, self.process_group)
        if rank.item() == -1:
            raise RuntimeError("BUG! Expected rank_cond to be true for at least one process.")
        return int(rank.item())


def _trained(module, ignored):
    """Parameters that get gradients, by name, each once."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad and name not in ignored}


def _check_devices(module, named, device_ids, output_device):
    devices = {p.device for p in named.values()}
    several = len(devices) > 1
    if device_ids is not None and len(device_ids) > 1:
        raise ValueError("device_ids can only be None or contain a single element.")
    on_cpu = any(d.type == "cpu" for d in devices)
    if (several or on_cpu) and (device_ids or output_device):
        raise ValueError(
            "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device "
            f"GPU modules or CPU modules, but got device_ids {device_ids}, output_device {output_device}, and module "
            f"parameters { {p.device for p in module.parameters()} }."
        )


def _to(device, dtype, inputs, kwargs):
    from mica.utils._pytree import tree_map_only

    def move(tensor):
        if device is not None:
            tensor = tensor.to(device)
        return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor

    return tree_map_only(_C.Tensor, move, (inputs, kwargs))


def _tensors_of(output):
    """The tensors in an output of nested lists, dicts, dataclasses."""
    if isinstance(output, _C.Tensor):
        return [output]
    if isinstance(output, dict):
        output = output.values()
    elif dataclasses.is_dataclass(output):
        output = [getattr(output, field.name) for field in dataclasses.fields(output)]
    elif not isinstance(output, (list, tuple)):
        return []
    return [tensor for part in output for tensor in _tensors_of(part)]
