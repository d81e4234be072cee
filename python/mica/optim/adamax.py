"""Adamax: Adam with the largest gradient in place of the mean square."""

from mica._generated import optimizers
from mica._generated.optimizers import adamax

__all__ = ["Adamax", "adamax"]


class Adamax(optimizers.Adamax):
    """Adam that divides by a decaying maximum of the gradients' sizes."""
