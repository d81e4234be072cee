"""Intel's GPUs: there is no backend for them."""

__all__ = ["device_count", "is_available", "is_initialized", "manual_seed", "manual_seed_all"]


def is_available():
    """Return False: Mica cannot use Intel GPUs."""
    return False


def is_initialized():
    """Return False: there is nothing to initialise."""
    return False


def device_count():
    """Return 0: Mica cannot use Intel GPUs."""
    return 0


def manual_seed(seed):
    """Do nothing: there is no generator to seed."""


def manual_seed_all(seed):
    """Do nothing: there is no generator to seed."""
