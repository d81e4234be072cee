"""cuSPARSELt: not used."""


def version():
    """The version of cuSPARSELt: None, since Mica does not use it."""


def is_available():
    """Whether cuSPARSELt can be used: always False."""
    return False
