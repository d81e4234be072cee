"""The compiler's front: there is none."""


class NotSupportedError(RuntimeError):
    """Raised by torch for code that TorchScript cannot compile; Mica does not raise it."""


class UnsupportedNodeError(NotSupportedError):
    """Raised by torch for code that TorchScript cannot compile; Mica does not raise it."""
