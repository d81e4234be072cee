"""Whether kernels in Triton can run: none can on Mica's tensors."""

import functools
import importlib.util


@functools.cache
def has_triton_package():
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def has_triton():
    """False: Mica does not start kernels of Triton's."""
    return False
