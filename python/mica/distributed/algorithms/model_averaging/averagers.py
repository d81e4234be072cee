"""When parameters are averaged."""

import warnings
from abc import ABC, abstractmethod

from mica.distributed.algorithms.model_averaging import utils

__all__ = ["ModelAverager", "PeriodicModelAverager"]


def _warn_of_period_one(what):
    warnings.warn(
        f"When {what} is 1, parameters are averaged in every step, which costs no less than averaging gradients does: "
        "DistributedDataParallel alone is enough.",
        stacklevel=3,
    )


def _check_warmup(steps):
    if steps < 0:
        raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
    return steps


class ModelAverager(ABC):
    """Counts the steps of a training, and averages parameters in some of them."""

    def __init__(self, process_group=None):
        from mica.distributed.world import _group

        self.process_group = _group(process_group)
        self.step = 0

    @abstractmethod
    def average_parameters(self, params):
        raise NotImplementedError


class PeriodicModelAverager(ModelAverager):
    """Averages after every `period` steps, once `warmup_steps` are over."""

    def __init__(self, period, warmup_steps=0, process_group=None):
        super().__init__(process_group)
        self.warmup_steps = _check_warmup(warmup_steps)
        if period < 1:
            raise ValueError("Arg ``period`` must be a positive value.")
        if period == 1:
            _warn_of_period_one("period")
        self.period = period

    def average_parameters(self, params):
        """Count a step, and average parameters, or an optimizer's groups, if it is time."""
        since = self.step - self.warmup_steps
        if since >= 0 and since % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
