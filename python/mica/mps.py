"""Apple's GPUs: there is no backend for them."""

__all__ = ["device_count", "is_available", "manual_seed"]


def is_available():
    """False."""
    return False


def device_count():
    """0."""
    return 0


def manual_seed(seed):
    """Nothing to seed."""
