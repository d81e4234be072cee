"""Layers joined with what follows them, by their older name: see mica.ao.nn.intrinsic."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mica.ao.nn import intrinsic

    return getattr(intrinsic, name)
