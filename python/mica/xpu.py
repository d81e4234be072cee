"""Intel's GPUs: there is no backend for them."""

from mica._as_torch.absent_device import functions as _functions

globals().update(_functions("XPU", "xpu"))


def __getattr__(name):
    if name == "amp":
        from mica import amp

        return amp
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
