"""What a checkpointed function finds in both of its runs: the same random numbers and the same autocast modes."""

import contextlib

from mica import _C
from mica.amp.autocast_mode import autocast


class Surroundings:
    """The random stream and the autocast modes as they were, to be set again for the second run."""

    def __init__(self, preserve_rng_state):
        self.random_state = _C.default_generator.get_state() if preserve_rng_state else None
        cached = _C.is_autocast_cache_enabled()
        self.autocast = [
            (device, _C.get_autocast_dtype(device), _C.is_autocast_enabled(device), cached)
            for device in ("cpu", "cuda")
        ]

    @contextlib.contextmanager
    def again(self):
        now = _C.default_generator.get_state() if self.random_state is not None else None
        with contextlib.ExitStack() as modes:
            for device, dtype, enabled, cached in self.autocast:
                if enabled or _C.is_autocast_enabled(device):
                    modes.enter_context(autocast(device, dtype, enabled, cached))
            try:
                if now is not None:
                    _C.default_generator.set_state(self.random_state)
                yield
            finally:
                if now is not None:
                    _C.default_generator.set_state(now)
