"""What is done to graphs."""

from mica.fx.passes import shape_prop

__all__ = ["shape_prop"]
