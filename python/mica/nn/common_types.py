"""Names for the types of arguments: a number, or one for each dimension."""

from typing import TypeVar

from mica._C import Tensor


def _one_or(entry, *counts):
    """The entry itself or a tuple of as many entries; of any number of them without counts."""
    union = entry
    for count in counts or (None,):
        union = union | (tuple[entry, ...] if count is None else tuple[(entry,) * count])
    return union


T = TypeVar("T")
_scalar_or_tuple_any_t = T | tuple[T, ...]
_scalar_or_tuple_1_t = T | tuple[T]
_scalar_or_tuple_2_t = T | tuple[T, T]
_scalar_or_tuple_3_t = T | tuple[T, T, T]
_scalar_or_tuple_4_t = T | tuple[T, T, T, T]
_scalar_or_tuple_5_t = T | tuple[T, T, T, T, T]
_scalar_or_tuple_6_t = T | tuple[T, T, T, T, T, T]
_size_any_t = _one_or(int)
_size_1_t, _size_2_t, _size_3_t, _size_4_t, _size_5_t, _size_6_t = (_one_or(int, n) for n in range(1, 7))
_size_any_opt_t = _one_or(int | None)
_size_2_opt_t, _size_3_opt_t = (_one_or(int | None, n) for n in (2, 3))
_ratio_2_t, _ratio_3_t = (_one_or(float, n) for n in (2, 3))
_ratio_any_t = _one_or(float)
_tensor_list_t = _one_or(Tensor)
_maybe_indices_t = _one_or(Tensor, 2)
