"""MTIA accelerators: there is no backend for them."""

from mica._as_torch.absent_device import functions as _functions

globals().update(_functions("MTIA", "mtia"))
