"""cuSPARSELt: not used."""


def version():
    """None."""


def is_available():
    """False."""
    return False
