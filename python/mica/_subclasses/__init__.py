"""Tensors that stand for others: fake ones without data, and those of classes with a __torch_dispatch__."""

import importlib


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    fake_tensor = importlib.import_module("mica._subclasses.fake_tensor")
    return fake_tensor if name == "fake_tensor" else getattr(fake_tensor, name)
