"""Passes, which change graphs."""

from mica.fx.passes import shape_prop

__all__ = ["shape_prop"]


def __getattr__(name):
    if name in ("fake_tensor_prop", "split_module", "infra", "utils", "dialect"):
        import importlib

        return importlib.import_module(f"mica.fx.passes.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
