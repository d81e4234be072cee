"""Whether OpenMP's threads compute."""


def is_available():
    """False: the threads are Mica's own."""
    return False
