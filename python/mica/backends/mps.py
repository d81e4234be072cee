"""Says that there is no backend for Apple's GPUs."""


def is_built():
    """False: there is no backend for them."""
    return False


def is_macos_or_newer(major, minor):
    raise RuntimeError("Cannot execute isOnMacOSorNewer() without MPS backend: Mica has none")


def is_macos13_or_newer(minor=0):
    return is_macos_or_newer(13, minor)


def is_available():
    """False: there is no backend for them."""
    return False
