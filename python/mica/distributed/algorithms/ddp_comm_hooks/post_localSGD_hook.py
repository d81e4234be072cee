"""Averages gradients over all processes at first, and later within small groups only."""

from mica.distributed.algorithms.ddp_comm_hooks.default_hooks import _average

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """When the change comes, and between whom gradients are averaged then."""

    def __init__(self, process_group, subgroup, start_localSGD_iter, post_local_gradient_allreduce=True):
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket):
        """Counts a pass when its last bucket comes."""
        if bucket.is_last():
            self.iter += 1


def post_localSGD_hook(state, bucket):
    """The mean over all processes until `start_localSGD_iter`, from then on over the subgroup or none."""
    from mica.distributed import new_subgroups
    from mica.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook

    starting = state.iter < state.start_localSGD_iter
    state.maybe_increase_iter(bucket)
    if starting:
        return _average(state.process_group, bucket.buffer())
    if not state.post_local_gradient_allreduce:
        return noop_hook(None, bucket)
    if state.subgroup is None:
        state.subgroup, _ = new_subgroups()
    return _average(state.subgroup, bucket.buffer())
