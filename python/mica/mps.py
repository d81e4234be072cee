"""Apple's GPUs: there is no backend for them."""

__all__ = ["device_count", "is_available", "manual_seed"]


def is_available():
    """Return False: Mica cannot use Apple GPUs."""
    return False


def device_count():
    """Return 0: Mica cannot use Apple GPUs."""
    return 0


def manual_seed(seed):
    """Do nothing: there is no generator to seed."""
