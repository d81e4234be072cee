"""Operators of torch.ops.aten that torch has as functions of its root."""

import mica


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(mica.ops.aten, name)
