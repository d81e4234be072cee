"""The inputs of an ONNX file: the tensors among a module's arguments, their names, and which of their axes are dynamic."""

import inspect

import mica
from mica.utils._pytree import tree_flatten, tree_flatten_with_path, tree_unflatten

__all__ = ["dynamic_axes_of", "inputs_of", "with_telling_sizes"]

_PRIMES = (13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101,
           103, 107, 109, 113, 127, 131, 137, 139)  # fmt: skip


def inputs_of(model, args, kwargs):
    """The bound arguments, and (name, tensor) of the tensors in them, in order. A tensor within a list or a dict is named by
    the argument and by its place, as torch.export does."""
    args = args if isinstance(args, (tuple, list)) else (args,)
    args = list(args)
    if args and isinstance(args[-1], dict) and not kwargs:
        kwargs = args.pop()
    function = model.forward if isinstance(model, mica.nn.Module) else model
    signature = inspect.signature(function)
    bound = signature.bind(*args, **(kwargs or {}))
    tensors = []
    for parameter, value in bound.arguments.items():
        start = [] if signature.parameters[parameter].kind is inspect.Parameter.VAR_KEYWORD else [parameter]
        for path, leaf in tree_flatten_with_path(value)[0]:
            if isinstance(leaf, mica.Tensor):
                tensors.append(("_".join([*start, *map(_place, path)]), leaf))
    return bound, tensors


def _place(key):
    """A step of a path as part of a name."""
    return str(next(getattr(key, name) for name in ("idx", "key", "name") if hasattr(key, name)))


def with_telling_sizes(writer, bound, tensors, names, axes, attempt=0):
    """The inputs with dynamic axes as long as a prime that divides no size of a weight, one for each label: sizes that come from
    them are then known as multiples of it. Each attempt takes other primes."""
    taken = {size for array in writer.weights() for size in array.shape}
    taken |= {size for (_, tensor) in tensors for size in tensor.shape}
    count = len({label for each in axes.values() for label in each.values()})
    fitting = [p for p in _PRIMES if all(size % p for size in taken if size)]
    primes, sizes, made = iter(fitting[attempt * count :] or fitting), {}, []
    for name, (parameter, tensor) in zip(names, tensors, strict=True):
        for axis, label in axes.get(name, {}).items():
            if label not in sizes:
                sizes[label] = next(primes)
                writer.dynamic[sizes[label]] = (name, axis)
            index = mica.arange(sizes[label], device=tensor.device) % tensor.shape[axis]
            tensor = tensor.index_select(axis, index)
        made.append((parameter, tensor))
    told = iter(made)
    for parameter, value in bound.arguments.items():
        leaves, spec = tree_flatten(value)
        leaves = [next(told)[1] if isinstance(leaf, mica.Tensor) else leaf for leaf in leaves]
        bound.arguments[parameter] = tree_unflatten(leaves, spec)
    return made


def _labels(axes):
    """{axis: label} of a tensor's open sizes."""
    pairs = axes.items() if isinstance(axes, dict) else enumerate(axes)
    return {
        axis: str(getattr(label, "__name__", label))
        for axis, label in pairs
        if label is not None and not isinstance(label, int)
    }


def _of_tensors(value, shapes):
    """What dynamic_shapes say of each tensor in an argument, in order."""
    if isinstance(value, mica.Tensor):
        return [shapes]
    if isinstance(value, (list, tuple)):
        each = list(shapes) if isinstance(shapes, (list, tuple)) else [None] * len(value)
        return [found for part, own in zip(value, each, strict=True) for found in _of_tensors(part, own)]
    if isinstance(value, dict):
        own = shapes if isinstance(shapes, dict) else {}
        return [found for key, part in value.items() for found in _of_tensors(part, own.get(key))]
    return [None for leaf in tree_flatten(value)[0] if isinstance(leaf, mica.Tensor)]


def dynamic_axes_of(given, names, shapes, bound):
    """{input: {axis: label}} from dynamic_axes, by the inputs' names, or from dynamic_shapes, by the arguments."""
    found = {}
    for name, axes in (given or {}).items():
        if axes is None:
            continue
        pairs = axes.items() if isinstance(axes, dict) else ((axis, f"{name}_{axis}") for axis in axes)
        found[name] = {axis: str(getattr(label, "__name__", label)) for axis, label in pairs if label is not None}
    if isinstance(shapes, (tuple, list)):
        shapes = dict(zip(bound.arguments, shapes, strict=False))
    shapes = dict(shapes or {})
    own = [each for key, value in bound.arguments.items() for each in _of_tensors(value, shapes.pop(key, None))]
    for name, axes in [*zip(names, own, strict=True), *shapes.items()]:
        if axes:
            found[name] = _labels(axes)
    return found
