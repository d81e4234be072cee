"""The parts of torch.func that packages import from here, as torch has them: those of vmap."""


def __getattr__(name):
    import importlib

    if name == "config":
        return importlib.import_module("mica._functorch.config")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
