"""Torch's compiler of graphs: its settings, and packages of programs."""


def __getattr__(name):
    import importlib

    if name in ("config", "decomposition", "packages"):
        return importlib.import_module(f"mica._inductor.{name}")
    if name in ("aoti_compile_and_package", "aoti_load_package"):
        return getattr(importlib.import_module("mica._inductor.packages"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
