"""The default device as a context, by the module that torch has it in."""

from mica import _C
from mica.utils._contextlib import context_decorator

CURRENT_DEVICE = None


def set_device(device):
    """Decorate a function, so that the tensors that it makes are on the device. A generator keeps the device while it runs."""
    return lambda function: context_decorator(lambda: _C.device(device), function)
