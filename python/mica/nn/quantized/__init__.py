"""Layers of quantized numbers, by their older name: see mica.ao.nn.quantized."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mica.ao.nn import quantized

    return getattr(quantized, name)
