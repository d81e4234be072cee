"""The default random stream: seeding it, saving and restoring its state."""

from mica._C import _seed_devices, default_generator

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state", "thread_safe_generator"]


def manual_seed(seed):
    """Start the default stream of every device from this seed; returns the CPU's generator."""
    generator = default_generator.manual_seed(int(seed))
    _seed_devices(generator.initial_seed())
    return generator


def seed():
    """Seed the default stream from the system's entropy; returns the seed."""
    return default_generator.seed()


def initial_seed():
    """The seed that the default stream began with."""
    return default_generator.initial_seed()


def get_rng_state():
    """The state of the default stream, as a ByteTensor."""
    return default_generator.get_state()


def set_rng_state(new_state):
    """Continue the default stream from a state that get_rng_state() returned."""
    default_generator.set_state(new_state)


def fork_rng(devices=None, enabled=True, _caller="fork_rng", _devices_kw="devices", device_type="cuda"):
    """Draw random numbers in the block without moving the default stream; that of the CPU is the only one so far."""
    import contextlib

    return contextlib.contextmanager(_forked)(enabled)


def _forked(enabled):
    state = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if enabled:
            set_rng_state(state)


def thread_safe_generator():
    """None, which means the default stream: Mica's workers are processes, and its default generator has a lock."""
