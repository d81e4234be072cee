"""Types of process groups that torch keeps in its engine: those that torch.distributed has."""


def __getattr__(name):
    from mica import distributed

    if not name.startswith("__") and hasattr(distributed, name):
        return getattr(distributed, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
