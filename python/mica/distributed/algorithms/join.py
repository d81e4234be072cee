"""Processes with different numbers of batches: there is one."""

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a process that is done does for the others."""

    def main_hook(self):
        """Called while other processes still run; does nothing unless a subclass says what."""

    def post_hook(self, is_last_joiner):
        """Called when all processes have ended; does nothing unless a subclass says what."""


class Joinable:
    """The base of classes that take part in a Join."""

    def __init__(self):
        self._join_config = None


class Join:
    """A with block in which processes may end at different times: the only one ends when it does."""

    def __init__(self, joinables, enable=True, throw_on_early_termination=False, **kwargs):
        self._joinables, self._enable = joinables, enable

    def __enter__(self):
        from mica.distributed.world import get_world_size, is_initialized

        if self._enable and is_initialized() and get_world_size() > 1:
            raise NotImplementedError("Join of several processes is not in Mica yet: give all of them as many batches")
        return self

    def __exit__(self, *exception):
        return None

    @staticmethod
    def notify_join_context(joinable):
        """Does nothing: one process has nobody who waits for it."""
