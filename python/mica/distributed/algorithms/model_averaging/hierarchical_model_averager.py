"""Averages within small groups often, and within large ones seldom."""

from mica.distributed.algorithms.model_averaging import utils
from mica.distributed.algorithms.model_averaging.averagers import ModelAverager, _check_warmup, _warn_of_period_one

__all__ = ["HierarchicalModelAverager"]


class HierarchicalModelAverager(ModelAverager):
    """Groups by their periods: `{4: 8, 16: 16}` averages over 8 processes every 4 steps and over 16 every 16.

    In a step that several periods divide, the largest of them counts.
    """

    def __init__(self, period_group_size_dict=None, warmup_steps=0, process_group=None):
        from mica.distributed import get_world_size, new_subgroups

        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        self._periods = list(period_group_size_dict)
        sizes = list(period_group_size_dict.values())
        if self._periods[0] <= 0:
            raise ValueError("The minimum period in arg ``period_group_size_dict`` must be a positive value.")
        if self._periods[-1] == 1:
            _warn_of_period_one("the maximum period in arg ``period_group_size_dict``")
        whole = get_world_size(self.process_group)
        if sizes[-1] != whole:
            raise ValueError(
                f"The last value in arg ``period_group_size_dict`` {sizes[-1]} must be equal to the size of arg "
                f"``process_group`` {whole}."
            )
        self.warmup_steps = _check_warmup(warmup_steps)
        self.period_process_group_dict = {
            period: self.process_group if size == whole else new_subgroups(size, self.process_group)[0]
            for period, size in period_group_size_dict.items()
        }

    def _find_process_group(self):
        found = [period for period in self._periods if self.step % period == 0]
        return self.period_process_group_dict[found[-1]] if found else None

    def average_parameters(self, params):
        """Count a step, and average parameters, or an optimizer's groups, if it is time."""
        group = self._find_process_group() if self.step >= self.warmup_steps else None
        if group is not None:
            utils.average_parameters_or_parameter_groups(params, group)
        self.step += 1
