"""Optimizers that spread their states over processes, or step in their own time."""

__all__ = ["PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]

_MODULES = {
    "PostLocalSGDOptimizer": "post_localSGD_optimizer",
    "ZeroRedundancyOptimizer": "zero_redundancy_optimizer",
    "_apply_optimizer_in_backward": "apply_optimizer_in_backward",
    "_get_in_backward_optimizers": "apply_optimizer_in_backward",
}


def __getattr__(name):
    if name in _MODULES:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
