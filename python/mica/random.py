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
    """Draw random numbers in the block without moving the default streams of the CPU and of the devices.

    `devices` are numbers or names of devices of `device_type`; all that there are if it is None.
    """
    import contextlib

    return contextlib.contextmanager(_forked)(devices, enabled, device_type, _caller, _devices_kw)


def _forked(devices, enabled, device_type, caller, keyword):
    import mica  # the modules of devices import this one

    device_type = mica.device(device_type).type
    if device_type == "meta" or not enabled:
        yield
        return
    module = getattr(mica, str(device_type), None)
    if module is None or not hasattr(module, "get_rng_state"):
        if device_type == "cpu":
            module = None
        else:
            raise RuntimeError(
                f"torch has no module of `{device_type}`, you should register a module by "
                "`torch._register_device_module`."
            )
    if devices is None:
        count = module.device_count() if module is not None else 0
        if count > 1:
            _warn_of_many(device_type, count, caller, keyword)
        devices = range(count)
    devices = list(devices)
    states = [module.get_rng_state(device) for device in devices]
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
        for device, kept in zip(devices, states, strict=True):
            module.set_rng_state(kept, device)


_warned_of_many = False


def _warn_of_many(device_type, count, caller, keyword):
    """Say once that the states of all devices are kept, which takes time where there are many."""
    import warnings

    global _warned_of_many
    if not _warned_of_many:
        _warned_of_many = True
        warnings.warn(
            f"{device_type.upper()} reports that you have {count} available devices, and you have used {caller} without "
            f"explicitly specifying which devices are being used. For safety, we initialize *every* {device_type.upper()} "
            f"device by default, which can be quite slow if you have a lot of {device_type.upper()}s. If you know that you "
            f"are only making use of a few {device_type.upper()} devices, pass them by the keyword argument `{keyword}`.",
            stacklevel=6,
        )


def thread_safe_generator():
    """None, which means the default stream: Mica's workers are processes, and its default generator has a lock."""
