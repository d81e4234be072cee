"""The parts of torch.library."""


def __getattr__(name):
    import importlib

    if name in ("custom_ops", "infer_schema", "fake_class_registry"):
        return importlib.import_module(f"mica._library.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
