"""Optimizers that spread their states over processes."""

__all__ = ["ZeroRedundancyOptimizer"]


def __getattr__(name):
    if name == "ZeroRedundancyOptimizer":
        from mica.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
