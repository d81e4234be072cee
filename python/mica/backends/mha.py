"""torch's setting of the short way through attention in eval mode. It is kept and changes nothing."""

_fastpath = True


def get_fastpath_enabled():
    """The setting."""
    return _fastpath


def set_fastpath_enabled(value):
    """Keep the setting."""
    global _fastpath
    _fastpath = value
