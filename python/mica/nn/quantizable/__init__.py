"""Modules that can be observed part by part, by their older name: see mica.ao.nn.quantizable."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mica.ao.nn import quantizable

    return getattr(quantizable, name)
