"""Torch's compiler of graphs: there is none here, only its settings."""


def __getattr__(name):
    if name in ("config", "decomposition"):
        import importlib

        return importlib.import_module(f"mica._inductor.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
