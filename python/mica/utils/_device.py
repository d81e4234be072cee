"""The default device as a context, by the module that torch has it in."""

from mica import _C

CURRENT_DEVICE = None


def set_device(device):
    """Decorate a function: what it makes lies on the device."""
    import functools

    def decorate(function):
        @functools.wraps(function)
        def on_device(*args, **kwargs):
            with _C.device(device):
                return function(*args, **kwargs)

        return on_device

    return decorate
