"""Whether MKL computes."""


def is_available():
    """False: MKL is not used."""
    return False
