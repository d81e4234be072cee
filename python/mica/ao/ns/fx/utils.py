"""Distances between two tensors, or between the tensors of two tuples one by one. Tensors of
other dtypes than float32 have none."""

import functools

import mica

__all__ = ["compute_cosine_similarity", "compute_normalized_l2_error", "compute_sqnr"]


def _of_each(function):
    @functools.wraps(function)
    def measured(x, y):
        if isinstance(x, (list, tuple)):
            return [measured(a, b) for a, b in zip(x, y, strict=True)]
        x, y = (each.dequantize() if each.is_quantized else each for each in (x, y))
        return function(x, y) if x.dtype is mica.float32 and y.dtype is mica.float32 else None

    return measured


@_of_each
def compute_sqnr(x, y):
    """The power of the signal x beside that of the difference from y, in decibels."""
    return 20 * mica.log10(mica.norm(x) / mica.norm(x - y))


@_of_each
def compute_normalized_l2_error(x, y):
    """The length of the difference, beside that of x."""
    return mica.sqrt(((x - y) ** 2).sum() / (x**2).sum())


@_of_each
def compute_cosine_similarity(x, y):
    """The cosine of the angle between x and y, both taken as vectors."""
    return mica.nn.functional.cosine_similarity(x.reshape(1, -1), y.reshape(1, -1))
