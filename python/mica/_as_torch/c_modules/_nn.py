"""Functions of layers that torch keeps in its engine."""

from mica.nn import functional as _functional
from mica.nn.modules._conversion import _parse_to  # noqa: F401


def __getattr__(name):
    if name == "log_sigmoid":
        return _functional.logsigmoid
    if name.startswith("__") or hasattr(_functional, name):
        return getattr(_functional, name)
    from mica._ops import ops

    return getattr(ops.aten, name)  # torch keeps some of its operators here too
