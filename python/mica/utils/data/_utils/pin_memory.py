"""Batches in memory that a GPU reads directly."""

import collections.abc

from mica import _C
from mica.utils.data._utils.collate import _is_named_tuple, map_mapping, map_sequence


def pin_memory(data, device=None):
    """The batch with its tensors pinned, and whatever else has a pin_memory method."""
    if isinstance(data, _C.Tensor):
        try:
            return data.pin_memory()
        except NotImplementedError:
            return data  # copies from ordinary memory work too
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, collections.abc.Mapping):
        return map_mapping(data, lambda key: pin_memory(data[key], device))
    if _is_named_tuple(data):
        return type(data)(*(pin_memory(each, device) for each in data))
    if isinstance(data, tuple):
        return type(data)(pin_memory(each, device) for each in data)
    if isinstance(data, collections.abc.Sequence):
        return map_sequence(data, [pin_memory(each, device) for each in data])
    return data
