"""make_tensor: random inputs for tests."""

import math
import warnings

from mica import _C


def _bounds(low, high, lowest, highest, default_low, default_high, equal=False):
    if any(isinstance(value, float) and math.isnan(value) for value in (low, high)):
        raise ValueError(f"`low` and `high` cannot be NaN, but got low={low!r} and high={high!r}")
    low = default_low if low is None else low
    high = default_high if high is None else high
    if equal and low == high:
        warnings.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated since 2.1 and "
            "will be removed in 2.3. Use `torch.full(...)` instead.",
            FutureWarning,
            stacklevel=3,
        )
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    if high < lowest or low > highest or (not equal and low == highest):  # integers stay below `highest`
        raise ValueError(
            f"The value interval specified by `low` and `high` is {low, high}, but the dtype only supports "
            f"{lowest, highest}"
        )
    return max(low, lowest), min(high, highest)


def _unsigned(dtype):
    return dtype in (_C.uint8, _C.uint16, _C.uint32, _C.uint64)


def make_tensor(
    *shape,
    dtype,
    device="cpu",
    low=None,
    high=None,
    requires_grad=False,
    noncontiguous=False,
    exclude_zero=False,
    memory_format=None,
):
    """A tensor of random values in [low, high): [-9, 9) for floating-point and complex dtypes, [-9, 10) for integers
    ([0, 10) for unsigned ones), both values of bool.

    noncontiguous: every other element of a larger tensor, if there is more than one. exclude_zero: zeros become the
    smallest positive number of the dtype.
    """
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
            f"noncontiguous={noncontiguous!r} and memory_format={memory_format!r}"
        )
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else tuple(shape)
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(
            f"`requires_grad=True` is not supported for boolean and integral dtypes, but got dtype={dtype!r}"
        )
    doubled = noncontiguous and math.prod(sizes) > 1
    made = (*sizes[:-1], 2 * sizes[-1]) if doubled else sizes

    if dtype is _C.bool:
        low, high = _bounds(low, high, 0, 2, 0, 2)
        result = _C.randint(math.ceil(low), math.ceil(high), made, dtype=dtype, device=device)
    elif dtype.is_floating_point or dtype.is_complex:
        part = dtype.to_real() if dtype.is_complex else dtype
        limits = _C.finfo(part)
        low, high = _bounds(low, high, limits.min, limits.max, -9, 9, equal=True)
        exact = dtype if part in (_C.float32, _C.float64) else _C.complex64 if dtype.is_complex else _C.float32
        result = _C.empty(made, dtype=exact, device=device)
        parts = _C.view_as_real(result) if dtype.is_complex else result
        if low == high:
            parts.fill_(low)
        elif high - low >= _C.finfo(exact).max:  # a range that uniform_ refuses
            parts.uniform_(low / 2, high / 2).mul_(2)
        else:
            parts.uniform_(low, high)
        if exact != dtype and low != high:  # numbers just below the upper bound are rounded to it
            parts.masked_fill_(parts.to(part) >= high, low)
        result = result.to(dtype)
    else:
        limits = _C.iinfo(dtype)
        top = limits.max if dtype in (_C.int64, _C.uint64) else limits.max + 1  # `high` itself is never drawn
        low, high = _bounds(low, high, limits.min, top, 0 if _unsigned(dtype) else -9, 10)
        result = _C.randint(math.ceil(low), math.ceil(high), made, dtype=_C.int64, device=device).to(dtype)

    if exclude_zero:
        least = 1 if not (dtype.is_floating_point or dtype.is_complex) else _C.finfo(dtype).tiny
        result[result == 0] = least
    if doubled:
        result = result[..., ::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    return result.requires_grad_() if requires_grad else result
