"""Layers that train with fake quantization, by their older name: see mica.ao.nn.qat."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mica.ao.nn import qat

    return getattr(qat, name)
