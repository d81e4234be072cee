"""Says that there is no backend for Apple's GPUs."""


def is_built():
    """False: there is no backend for them."""
    return False


def is_available():
    """False: there is no backend for them."""
    return False
