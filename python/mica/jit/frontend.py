"""The compiler's front: there is none."""


class NotSupportedError(RuntimeError):
    """What cannot be compiled."""


class UnsupportedNodeError(NotSupportedError):
    """What cannot be compiled."""
