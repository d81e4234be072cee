"""Levels by a function of the epoch."""

from mica.ao.pruning.scheduler.base_scheduler import BaseScheduler

__all__ = ["LambdaSL"]


class LambdaSL(BaseScheduler):
    """The level of each group is its first one times `sl_lambda(epoch)`, one function or one for each group."""

    def __init__(self, sparsifier, sl_lambda, last_epoch=-1, verbose=False):
        count = len(sparsifier.groups)
        self.sl_lambdas = list(sl_lambda) if isinstance(sl_lambda, list | tuple) else [sl_lambda] * count
        if len(self.sl_lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(self.sl_lambdas)}")
        super().__init__(sparsifier, last_epoch, verbose)

    def get_sl(self):
        self._warn_outside_of_step()
        return [level * f(self.last_epoch) for f, level in zip(self.sl_lambdas, self.base_sl, strict=True)]
