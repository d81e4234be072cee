"""Arguments cut into one part for each device, and results put together."""

import mica
from mica import _C

__all__ = ["gather", "scatter", "scatter_kwargs"]


def is_namedtuple(obj):
    """Whether an object is a tuple with named fields."""
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


_is_namedtuple = is_namedtuple


def _device(each):
    return _C.device("cpu" if each == -1 else each) if not isinstance(each, _C.device) else each


def scatter(inputs, target_gpus, dim=0):
    """One part for each device: tensors are cut along `dim`, what holds them is taken apart, other objects are shared."""
    count = len(target_gpus)
    if isinstance(inputs, _C.TensorBase):
        parts = inputs.chunk(count, dim)
        return tuple(part.to(_device(place)) for part, place in zip(parts, target_gpus, strict=False))
    if isinstance(inputs, dict) and inputs:
        columns = zip(*(scatter(pair, target_gpus, dim) for pair in inputs.items()), strict=False)
        return [type(inputs)(pairs) for pairs in columns]
    if isinstance(inputs, (tuple, list)) and len(inputs):
        columns = zip(*(scatter(each, target_gpus, dim) for each in inputs), strict=False)
        if is_namedtuple(inputs):
            return [type(inputs)(*column) for column in columns]
        return [list(column) for column in columns] if isinstance(inputs, list) else list(columns)
    return [inputs for _ in target_gpus]


def scatter_kwargs(inputs, kwargs, target_gpus, dim=0):
    """`scatter` of positional and named arguments, both as long as the longer."""
    inputs = scatter(inputs, target_gpus, dim) if inputs else []
    kwargs = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(inputs), len(kwargs))
    inputs = [*inputs, *(() for _ in range(count - len(inputs)))]
    kwargs = [*kwargs, *({} for _ in range(count - len(kwargs)))]
    return tuple(inputs), tuple(kwargs)


def gather(outputs, target_device, dim=0):
    """The results of all devices as one: tensors are joined along `dim` on the target."""
    first = outputs[0]
    if isinstance(first, _C.TensorBase):
        place = _device(target_device)
        moved = [each.to(place) for each in outputs]
        return mica.stack(moved) if first.dim() == 0 else mica.cat(moved, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if not all(len(first) == len(each) for each in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((key, gather([each[key] for each in outputs], target_device, dim)) for key in first)
    joined = [gather(column, target_device, dim) for column in zip(*outputs, strict=True)]
    return type(first)(*joined) if is_namedtuple(first) else type(first)(joined)
