"""Optimizers that spread their states over processes: in a world of one, the optimizer itself."""

from mica.optim import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer whose states are spread over processes: with one process, all are here."""

    def __init__(
        self,
        params,
        optimizer_class,
        process_group=None,
        parameters_as_bucket_view=False,
        overlap_with_ddp=False,
        **defaults,
    ):
        self.optim = optimizer_class(params, **defaults)
        super().__init__(self.optim.param_groups, self.optim.defaults)
        self.param_groups, self.state = self.optim.param_groups, self.optim.state

    def step(self, closure=None, **kwargs):
        return self.optim.step(closure) if closure is not None else self.optim.step()

    def consolidate_state_dict(self, to=0):
        """Does nothing: one process holds all states."""

    def state_dict(self):
        return self.optim.state_dict()

    def load_state_dict(self, state_dict):
        self.optim.load_state_dict(state_dict)
        self.param_groups, self.state = self.optim.param_groups, self.optim.state
