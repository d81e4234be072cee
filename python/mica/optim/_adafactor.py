"""Adafactor: Adam whose second moment of a matrix is kept as one number for each row and each column."""

from mica._generated import optimizers
from mica._generated.optimizers import adafactor as _adafactor

__all__ = ["Adafactor", "adafactor"]


class Adafactor(optimizers.Adafactor):
    """Divides gradients by an estimate of their mean square that is kept as the product of a column and a row.

    Updates are clipped by their root mean square (`d`) and scaled by that of the parameter.
    """


def adafactor(*lists, grad_scale=None, found_inf=None, **options):
    """One step of Adafactor over lists."""
    if grad_scale is not None or found_inf is not None:
        raise AssertionError("Grad scaling should occur outside of optimizer.step()")
    _adafactor(*lists, **options)
