"""What torch.compile makes of a module, by the name that torch has it under."""

from mica._dynamo import disable, export, is_dynamo_supported, optimize, optimize_assert, reset  # noqa: F401
from mica._dynamo.optimized_module import OptimizedModule

__all__ = ["OptimizedModule"]


def innermost_fn(fn, unaltered_fn_attr="_torchdynamo_orig_callable"):
    """The function that was compiled."""
    while hasattr(fn, unaltered_fn_attr):
        fn = getattr(fn, unaltered_fn_attr)
    return fn
