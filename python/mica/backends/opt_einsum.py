"""torch's settings of opt_einsum. Mica chooses the order of contractions itself: the settings are kept and change nothing."""

from mica.backends._flags import setter_and_context

enabled = False
strategy = None

set_flags, flags = setter_and_context(__name__, enabled=None, strategy=None)


def is_available():
    """False: opt_einsum is not used."""
    return False


def get_opt_einsum():
    """None: opt_einsum is not used."""
