"""Whether functions are compiled to TorchScript: never."""


class _Enabled:
    """False, as an object: programs may ask for its `enabled` too."""

    enabled = False

    def __bool__(self):
        return self.enabled


_enabled = _Enabled()
