"""The class of compiled modules, in the module where torch has it."""

from mica._dynamo import disable, export, is_dynamo_supported, optimize, optimize_assert, reset  # noqa: F401
from mica._dynamo.external_utils import innermost_fn  # noqa: F401
from mica._dynamo.optimized_module import OptimizedModule

__all__ = ["OptimizedModule"]
