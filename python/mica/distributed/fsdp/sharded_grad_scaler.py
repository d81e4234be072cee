"""Scaling of losses where gradients are spread over processes: a process that finds an infinity tells the others."""

import mica
from mica.amp.grad_scaler import GradScaler

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """GradScaler for FullyShardedDataParallel: all processes leave the same steps out."""

    def __init__(
        self, device="cuda", init_scale=2.0**16, backoff_factor=0.5, growth_factor=2.0, growth_interval=2000, enabled=True,
        process_group=None,
    ):  # fmt: skip
        super().__init__(
            device, init_scale=init_scale, growth_factor=growth_factor, backoff_factor=backoff_factor,
            growth_interval=growth_interval, enabled=enabled,
        )  # fmt: skip
        self.process_group = process_group

    def unscale_(self, optimizer):
        """Divide the gradients by the scale, and ask all processes whether any of theirs is infinite or NaN."""
        if not self._enabled:
            return
        super().unscale_(optimizer)
        found = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        if not found:  # a process without a piece takes part too
            found[self._scale.device] = mica.zeros((), dtype=mica.float32, device=self._scale.device)
        for value in found.values():
            mica.distributed.all_reduce(value, mica.distributed.ReduceOp.MAX, self.process_group)
