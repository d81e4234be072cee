"""Says that Intel's MKL is not used: matrix products are Mica's own."""


def is_available():
    """False: MKL is not used."""
    return False
