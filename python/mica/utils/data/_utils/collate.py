"""Samples into batches."""

import collections.abc
import copy
import re
import sys

from mica import _C
from mica.utils.data._utils.worker import shared_empty

np_str_obj_array_pattern = re.compile(r"[SaUO]")
default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)


def map_mapping(mapping, function):
    """A mapping of the same kind with function(key) as values; a dict where the kind cannot be made."""
    values = {key: function(key) for key in mapping}
    try:
        if isinstance(mapping, collections.abc.MutableMapping):
            clone = copy.copy(mapping)  # it may have attributes of its own
            clone.update(values)
            return clone
        return type(mapping)(values)
    except TypeError:
        return values


def map_sequence(sequence, values):
    """A sequence of the same kind with these values; a list where the kind cannot be made."""
    try:
        if isinstance(sequence, collections.abc.MutableSequence):
            clone = copy.copy(sequence)
            for i, value in enumerate(values):
                clone[i] = value
            return clone
        return type(sequence)(values)
    except TypeError:
        return values


def _is_named_tuple(value):
    return isinstance(value, tuple) and hasattr(value, "_fields")


def default_convert(data):
    """The sample with its NumPy arrays as tensors."""
    kind = type(data)
    if isinstance(data, _C.Tensor):
        return data
    if kind.__module__ == "numpy" and kind.__name__ not in ("str_", "string_"):
        if kind.__name__ == "ndarray" and np_str_obj_array_pattern.search(data.dtype.str):
            return data
        return _C.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return map_mapping(data, lambda key: default_convert(data[key]))
    if _is_named_tuple(data):
        return kind(*(default_convert(each) for each in data))
    if isinstance(data, tuple):
        return [default_convert(each) for each in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return map_sequence(data, [default_convert(each) for each in data])
    return data


def collate(batch, *, collate_fn_map=None):
    """A batch of samples as one sample of batches; the map says by type how plain values are joined."""
    elem = batch[0]
    kind = type(elem)
    if collate_fn_map is not None:
        if kind in collate_fn_map:
            return collate_fn_map[kind](batch, collate_fn_map=collate_fn_map)
        if collate_fn_map is default_collate_fn_map and "numpy" in sys.modules:
            _know_numpy()
        for each in collate_fn_map:
            if isinstance(elem, each):
                return collate_fn_map[each](batch, collate_fn_map=collate_fn_map)
    if isinstance(elem, collections.abc.Mapping):
        return map_mapping(elem, lambda key: collate([each[key] for each in batch], collate_fn_map=collate_fn_map))
    if _is_named_tuple(elem):
        return kind(*(collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=False)))
    if isinstance(elem, collections.abc.Sequence):
        size = len(elem)
        if any(len(each) != size for each in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=True)]
        return columns if isinstance(elem, tuple) else map_sequence(elem, columns)
    raise TypeError(default_collate_err_msg_format.format(kind))


def collate_tensor_fn(batch, *, collate_fn_map=None):
    elem = batch[0]
    out = None
    if not elem.requires_grad:
        out = shared_empty((len(batch), *elem.shape), elem.dtype, elem.device)
    return _C.stack(batch, 0, out=out)


def collate_numpy_array_fn(batch, *, collate_fn_map=None):
    elem = batch[0]
    if np_str_obj_array_pattern.search(elem.dtype.str):
        raise TypeError(default_collate_err_msg_format.format(elem.dtype))
    return collate([_C.as_tensor(each) for each in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch, *, collate_fn_map=None):
    return _C.as_tensor(batch)


def collate_float_fn(batch, *, collate_fn_map=None):
    return _C.tensor(batch, dtype=_C.float64)


def collate_int_fn(batch, *, collate_fn_map=None):
    return _C.tensor(batch)


def collate_str_fn(batch, *, collate_fn_map=None):
    return batch


default_collate_fn_map = {
    _C.Tensor: collate_tensor_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def _know_numpy():
    """Add NumPy's types to the map, once there is NumPy: before float, of which some are subclasses."""
    import numpy as np

    if np.ndarray in default_collate_fn_map:
        return
    known = dict(default_collate_fn_map)
    default_collate_fn_map.clear()
    default_collate_fn_map[_C.Tensor] = known.pop(_C.Tensor, collate_tensor_fn)
    default_collate_fn_map[np.ndarray] = collate_numpy_array_fn
    default_collate_fn_map[(np.bool_, np.number, np.object_)] = collate_numpy_scalar_fn
    default_collate_fn_map.update(known)


if "numpy" in sys.modules:
    _know_numpy()


def default_collate(batch):
    """Tensors, arrays and numbers stacked into tensors; containers of them into containers of batches."""
    return collate(batch, collate_fn_map=default_collate_fn_map)
