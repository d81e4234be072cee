"""What programs use beside tensors."""

from mica.utils import dlpack, hooks

__all__ = ["checkpoint", "dlpack", "hooks"]


def __getattr__(name):
    if name == "checkpoint":
        import mica.utils.checkpoint as checkpoint

        return checkpoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
