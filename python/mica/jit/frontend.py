"""Names of TorchScript's front end, which Mica does not have."""


class NotSupportedError(RuntimeError):
    """Raised by torch for code that TorchScript cannot compile; Mica does not raise it."""


class UnsupportedNodeError(NotSupportedError):
    """Raised by torch for code that TorchScript cannot compile; Mica does not raise it."""
