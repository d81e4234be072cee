"""Processes with different numbers of batches: those that are done answer the others' collectives until all are."""

import abc
import warnings

import mica

__all__ = ["Join", "JoinHook", "Joinable"]

WARN_AFTER = 1000  # rounds of answering


class JoinHook:
    """The calls that a process which is done makes for the others."""

    def main_hook(self):
        """Called again and again while other processes still run; answers the collectives of one of their rounds."""

    def post_hook(self, is_last_joiner):
        """Called when all processes have ended; `is_last_joiner` on those that ended last."""


class Joinable(abc.ABC):
    """The base of classes that take part in a Join."""

    @abc.abstractmethod
    def __init__(self):
        super().__init__()
        self._join_config = _Config()

    @abc.abstractmethod
    def join_hook(self, **kwargs):
        """The JoinHook of this object; it is given the keyword arguments of Join."""

    @property
    @abc.abstractmethod
    def join_device(self):
        """The device of the collectives that a Join needs itself."""

    @property
    @abc.abstractmethod
    def join_process_group(self):
        """The group of the collectives that a Join needs itself."""


class _Config:
    """The settings of the Join that a Joinable is in."""

    def __init__(self, enable=False, throw_on_early_termination=False, is_first_joinable=False):
        self.enable, self.throw_on_early_termination = enable, throw_on_early_termination
        self.is_first_joinable = is_first_joinable


class Join:
    """A with block in which processes may end at different times."""

    def __init__(self, joinables, enable=True, throw_on_early_termination=False, **kwargs):
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables = joinables
        self._join_hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        self._enable, self._throw_on_early_termination = enable, throw_on_early_termination
        for i, joinable in enumerate(joinables):
            joinable._join_config = _Config(enable, throw_on_early_termination, i == 0)
        groups = {joinable.join_process_group for joinable in joinables}
        if len(groups) != 1:
            raise ValueError("Using join context manager with multiple process groups")
        devices = {joinable.join_device for joinable in joinables}
        self._process_group, self._device = groups.pop(), joinables[0].join_device
        if len(devices) > 1 and any(mica.device(d).type == "cuda" for d in devices):
            warnings.warn("Join with joinables on several devices uses the first one's", stacklevel=2)
        from mica.distributed import get_rank

        self._rank = get_rank(self._process_group)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if not self._enable or kind:
            return  # an error of the program goes out as it is
        is_last, rounds = True, 0
        while self._count_running():
            if self._throw_on_early_termination:
                self._tell_to_stop()
            if rounds == WARN_AFTER:
                warnings.warn(
                    f"Detected uneven input skew of greater than {WARN_AFTER}. This means that rank {self._rank} has at "
                    f"least {WARN_AFTER} fewer inputs than other currently-active ranks. This level of skew could lead "
                    "to performance degradation during training.",
                    stacklevel=2,
                )
            is_last = False
            for hook in self._join_hooks:
                hook.main_hook()
            rounds += 1
        for hook in self._join_hooks:
            hook.post_hook(is_last)

    def _count_running(self):
        from mica.distributed import all_reduce

        count = mica.zeros(1, device=self._device)
        all_reduce(count, group=self._process_group)
        return int(count.item())

    def _tell_to_stop(self):
        from mica.distributed import all_reduce

        all_reduce(mica.ones(1, device=self._device), group=self._process_group)
        raise RuntimeError(f"Rank {self._rank} exhausted all inputs.")

    @staticmethod
    def notify_join_context(joinable):
        """Says that this process goes on; every Joinable calls it before the collectives of a round.

        Returns the work of the reduction that counts running processes, whose tensor is its attribute `running`. Returns None
        outside of a Join, and for all but the first Joinable of a Join.
        """
        config = getattr(joinable, "_join_config", None)
        if config is None or not config.is_first_joinable or not config.enable:
            return None
        from mica.distributed import all_reduce

        device, group = joinable.join_device, joinable.join_process_group
        running = mica.ones(1, device=device)
        work = all_reduce(running, group=group, async_op=True)
        if config.throw_on_early_termination:
            ended = mica.zeros(1, device=device)
            all_reduce(ended, group=group)
            if ended.item():
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return _Notice(work, running)


class _Notice:
    """The work of a count, and the count when it is done."""

    def __init__(self, work, running):
        self._work, self.running = work, running

    def wait(self, *arguments):
        return self._work.wait(*arguments) if self._work is not None else True

    def is_completed(self):
        return self._work is None or self._work.is_completed()
