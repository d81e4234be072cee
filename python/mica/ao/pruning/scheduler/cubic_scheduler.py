"""Levels that rise fast and then ever more slowly: Zhu and Gupta, 2017."""

from mica.ao.pruning.scheduler.base_scheduler import BaseScheduler

__all__ = ["CubicSL"]


class CubicSL(BaseScheduler):
    """From `init_sl` at epoch `init_t` to the group's own level, `delta_t * total_t` epochs later."""

    def __init__(
        self, sparsifier, init_sl=0.0, init_t=0, delta_t=10, total_t=100, initially_zero=False, last_epoch=-1,
        verbose=False,
    ):  # fmt: skip
        self.sparsifier = sparsifier
        self.init_sl, self.init_t = self._make_sure_a_list(init_sl), self._make_sure_a_list(init_t)
        self.delta_t, self.total_t = self._make_sure_a_list(delta_t), self._make_sure_a_list(total_t)
        self.initially_zero = self._make_sure_a_list(initially_zero)
        super().__init__(sparsifier, last_epoch, verbose)

    @staticmethod
    def sparsity_compute_fn(s_0, s_f, t, t_0, dt, n, initially_zero=False):
        """The level at step t, of n steps of dt each, between s_0 and s_f."""
        if initially_zero and t < t_0:
            return 0
        return max(s_0, min(s_f, s_f + (s_0 - s_f) * (1.0 - (t - t_0) / (dt * n)) ** 3))

    def get_sl(self):
        self._warn_outside_of_step()
        groups = zip(
            self.init_sl, self.base_sl, self.init_t, self.delta_t, self.total_t, self.initially_zero, strict=True
        )
        return [
            self.sparsity_compute_fn(first, last, self.last_epoch, start, step, count, zero)
            for first, last, start, step, count, zero in groups
        ]
