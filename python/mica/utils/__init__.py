"""What programs use beside tensors."""

from mica.utils import dlpack, hooks

__all__ = ["dlpack", "hooks"]
