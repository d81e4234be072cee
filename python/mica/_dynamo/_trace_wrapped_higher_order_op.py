"""Names for functions that a compiler would trace."""

from mica.overrides import BaseTorchFunctionMode


class TransformGetItemToIndex(BaseTorchFunctionMode):
    """Lets x[i] with i a tensor be recorded as an operation: indexing is one here."""
