"""Intel's GPUs: there is no backend for them."""

__all__ = ["device_count", "is_available", "is_initialized", "manual_seed", "manual_seed_all"]


def is_available():
    """False."""
    return False


def is_initialized():
    """False."""
    return False


def device_count():
    """0."""
    return 0


def manual_seed(seed):
    """Nothing to seed."""


def manual_seed_all(seed):
    """Nothing to seed."""
