"""torch's setting of the short way through attention in eval mode. It is kept and changes nothing."""

_fastpath = True


def get_fastpath_enabled():
    """Whether the short way through attention was allowed. Nothing depends on it."""
    return _fastpath


def set_fastpath_enabled(value):
    """Note whether the short way through attention is allowed. Nothing depends on it."""
    global _fastpath
    _fastpath = value
