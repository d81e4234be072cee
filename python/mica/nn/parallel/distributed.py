"""A module in several processes: in a world of one, the module itself."""

import contextlib

from mica import _C
from mica.nn.modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Calls a module; its gradients are the mean over all processes, which with one are its own."""

    def __init__(
        self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True, init_sync=True,
        process_group=None, bucket_cap_mb=None, find_unused_parameters=False, check_reduction=False,
        gradient_as_bucket_view=False, static_graph=False, delay_all_reduce_named_params=None,
        param_to_hook_all_reduce=None, mixed_precision=None, device_mesh=None, skip_all_reduce_unused_params=False,
    ):  # fmt: skip
        from mica.distributed.world import _group

        super().__init__()
        for name, given in (("mixed_precision", mixed_precision),
                            ("delay_all_reduce_named_params", delay_all_reduce_named_params)):  # fmt: skip
            if given is not None:
                raise NotImplementedError(f"DistributedDataParallel({name}=...) is not in Mica yet")
        self.process_group = _group(process_group)
        if self.process_group.size() > 1:
            raise NotImplementedError(
                f"DistributedDataParallel in a group of {self.process_group.size()} processes is not in Mica yet: reduce the "
                "gradients with torch.distributed.all_reduce"
            )
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
            )
        self.module = module
        self.dim, self.device_ids = dim, device_ids
        self.device = next(iter(module.parameters())).device
        self.output_device = output_device if output_device is not None else (device_ids or [None])[0]
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * 2**20)
        self._communication = None

    def forward(self, *inputs, **kwargs):
        if self._communication is not None:
            self._communication.begin()
        if self.device_ids:
            from mica.utils._pytree import tree_map_only  # of use to those only who run a module in parallel

            inputs, kwargs = tree_map_only(_C.Tensor, lambda tensor: tensor.to(self.device), (inputs, kwargs))
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients add up in a with block and are not averaged: with one process nothing changes."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def join(self, divide_by_initial_world_size=True, enable=True, throw_on_early_termination=False):
        """A with block in which processes may end at different times."""
        from mica.distributed.algorithms.join import Join

        return Join([self], enable, throw_on_early_termination)

    def register_comm_hook(self, state, hook):
        """Call hook(state, bucket) in every backward pass that synchronises: its future's result becomes the gradients."""
        from mica.distributed.gradient_buckets import Communication, check_hook

        check_hook(hook)
        if self._communication is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        self._communication = Communication(
            parameters, self.bucket_bytes_cap, state, hook, lambda: self.require_backward_grad_sync
        )

    def _set_static_graph(self):
        self.static_graph = True
