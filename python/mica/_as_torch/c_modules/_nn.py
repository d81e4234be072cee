"""Functions of layers that torch keeps in its engine."""

from mica.nn import functional as _functional
from mica.nn.modules._conversion import _parse_to  # noqa: F401


def __getattr__(name):
    return getattr(_functional, name)
