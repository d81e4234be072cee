"""Types of process groups that torch keeps in its engine."""


def __getattr__(name):
    from mica import distributed
    from mica._as_torch import absent as _absent

    if name.startswith("__"):
        raise AttributeError(name)
    if hasattr(distributed, name):
        return getattr(distributed, name)
    if name[0].isupper():
        return _absent.placeholder("_C._distributed_c10d", name, "class")
    return _absent.placeholder("_C._distributed_c10d", name, "function")
