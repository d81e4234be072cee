"""The base of schedules."""

import functools
import warnings
import weakref

from mica.ao.pruning.sparsifier.base_sparsifier import BaseSparsifier

__all__ = ["BaseScheduler"]


def _counting(sparsifier):
    """The sparsifier's step, which counts its calls; without a reference from it to itself."""
    step = sparsifier.step
    if getattr(step, "_with_counter", False):
        return step
    function, owner = step.__func__, weakref.ref(sparsifier)

    @functools.wraps(function)
    def counted(*args, **kwargs):
        owner()._step_count += 1
        return function(owner(), *args, **kwargs)

    counted._with_counter = True
    return counted


class BaseScheduler:
    """Sets `sparsity_level` of a sparsifier's groups at each step; a subclass gives `get_sl`, the levels."""

    def __init__(self, sparsifier, last_epoch=-1, verbose=False):
        if not isinstance(sparsifier, BaseSparsifier):
            raise TypeError(f"{type(sparsifier).__name__} is not an instance of torch.ao.pruning.BaseSparsifier")
        self.sparsifier = sparsifier
        self.base_sl = [group["sparsity_level"] for group in sparsifier.groups]
        self.last_epoch, self.verbose = last_epoch, verbose
        sparsifier.step = _counting(sparsifier)
        sparsifier._step_count = self._step_count = 0
        self._get_sl_called_within_step = False
        self.step()

    def state_dict(self):
        """Everything but the sparsifier."""
        return {key: value for key, value in self.__dict__.items() if key != "sparsifier"}

    def load_state_dict(self, state_dict):
        """Go on from the state of another schedule."""
        self.__dict__.update(state_dict)

    def get_last_sl(self):
        """The levels that were last set."""
        return self._last_sl

    def _warn_outside_of_step(self):
        if not self._get_sl_called_within_step:
            warnings.warn(
                "To get the last sparsity level computed by the scheduler, please use `get_last_sl()`.", stacklevel=3
            )

    def get_sl(self):
        """The levels of this epoch; for `step`."""
        self._warn_outside_of_step()
        raise NotImplementedError

    def print_sl(self, is_verbose, group, sl, epoch=None):
        """Say what a group's level becomes."""
        if is_verbose:
            when = "Adjusting" if epoch is None else f"Epoch {epoch:5d}: adjusting"
            print(f"{when} sparsity level of group {group} to {sl:.4e}.")

    def __repr__(self):
        return f"{type(self).__name__} (\nSparsifier {self.sparsifier}\n    base_sl: {self.base_sl}\n)"

    def step(self, epoch=None):
        """Set the levels of the next epoch."""
        if self._step_count == 1:
            if not hasattr(self.sparsifier.step, "_with_counter"):
                warnings.warn(
                    "Seems like `sparsifier.step()` has been overridden after sparsity scheduler initialization. "
                    "Please, make sure to call `sparsifier.step()` before `scheduler.step()`.",
                    stacklevel=2,
                )
            elif self.sparsifier._step_count < 1:
                warnings.warn(
                    "Detected call of `scheduler.step()` before `sparsifier.step()`. You have to make sure you run the "
                    "sparsifier.step() BEFORE any calls to the scheduler.step().",
                    stacklevel=2,
                )
        self._step_count += 1
        self._get_sl_called_within_step = True
        try:
            self.last_epoch += 1
            levels = self.get_sl()
        finally:
            self._get_sl_called_within_step = False
        for i, (group, level) in enumerate(zip(self.sparsifier.groups, levels, strict=False)):
            group["sparsity_level"] = level
            self.print_sl(self.verbose, i, level, epoch)
        self._last_sl = [group["sparsity_level"] for group in self.sparsifier.groups]
        self.sparsifier.enable_mask_update = True

    def _make_sure_a_list(self, var):
        count = len(self.sparsifier.groups)
        if not isinstance(var, list | tuple):
            return [var] * count
        if len(var) != count:
            raise ValueError(f"Expected variable of length {count}, but got {len(var)}")
        return list(var)
