"""The random streams of the GPUs."""

import secrets

from mica import _C
from mica.cuda.streams import _cuda_device


def _generator(device):
    return _C._default_generator(_cuda_device(device))


def get_rng_state(device="cuda"):
    """The state of a GPU's random stream: its seed and how far it has come, as bytes."""
    return _generator(device).get_state()


def set_rng_state(new_state, device="cuda"):
    """Take up a state that `get_rng_state` has returned."""
    _generator(device).set_state(new_state)


def get_rng_state_all():
    """The states of all GPUs' random streams."""
    return [get_rng_state(i) for i in range(_C._device_count("cuda"))]


def set_rng_state_all(new_states):
    """Take up the states that `get_rng_state_all` has returned."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed):
    """Seed the current GPU's random stream; nothing where there is no GPU."""
    if _C._device_count("cuda") > 0:
        _generator(None).manual_seed(int(seed))


def manual_seed_all(seed):
    """Seed the random streams of all GPUs; nothing where there is none."""
    for i in range(_C._device_count("cuda")):
        _generator(i).manual_seed(int(seed))


def seed():
    """Seed the current GPU's random stream with an unpredictable number."""
    manual_seed(secrets.randbits(63))


def seed_all():
    """Seed the random streams of all GPUs with one unpredictable number."""
    manual_seed_all(secrets.randbits(63))


def initial_seed():
    """The seed that the current GPU's random stream began with."""
    return _generator(None).initial_seed()
