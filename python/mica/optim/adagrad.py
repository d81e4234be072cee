"""Adagrad: steps divided by the root of the sum of all squared gradients."""

from mica import _C
from mica._generated import optimizers
from mica._generated.optimizers import adagrad

__all__ = ["Adagrad", "adagrad"]


class Adagrad(optimizers.Adagrad):
    """Divides gradients by the root of the sum of all their squares."""

    def _made(self):
        """The sums are there before the first step, as torch has it."""
        for group in self.param_groups:
            for param in group["params"]:
                param.dim()  # a parameter without a shape refuses this: it can have no sums yet
        _C._adagrad_init(self.param_groups, self.state)

    def share_memory(self):
        """Move the sums to memory that other processes can see."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()
