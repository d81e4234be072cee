"""Sizes that may differ from call to call."""

__all__ = ["Constraint", "Dim", "dims"]


class _Hint:
    """Dim.AUTO and its like: what is said of a size without a name."""

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"Dim.{self._name}"


class Dim:
    """A size with a name, which may be anything from `min` to `max`; equal names are equal sizes."""

    AUTO, DYNAMIC, STATIC = _Hint("AUTO"), _Hint("DYNAMIC"), _Hint("STATIC")

    def __init__(self, name, *, min=None, max=None):
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__ = name
        self.min, self.max = 0 if min is None else min, max
        if max is not None and max <= self.min:
            raise AssertionError(f"Cannot create Dim with inconsistent min={self.min}, max={max}")

    def __repr__(self):
        return f"Dim('{self.__name__}', min={self.min}" + (")" if self.max is None else f", max={self.max})")

    def _unsupported(self, other):
        raise NotImplementedError(
            "A size that is computed from a Dim is not in Mica's torch.export: give the sizes names of their own"
        )

    __add__ = __radd__ = __sub__ = __mul__ = __rmul__ = _unsupported


class Constraint:
    """A constraint on a size, by torch's name: a Dim says it here."""


def dims(*names, min=None, max=None):
    """Several sizes of the same range."""
    return tuple(Dim(name, min=min, max=max) for name in names)


def named_sizes(shapes, args, kwargs, parameters):
    """{(index of the leaf, axis): Dim or label} from what `export` was given as dynamic_shapes."""
    from mica.utils._pytree import tree_flatten

    if shapes is None:
        return {}
    if not isinstance(shapes, dict):
        shapes = dict(zip(parameters, shapes, strict=False))
    values = {**dict(zip(parameters, args, strict=False)), **kwargs}
    found, start = {}, 0
    for name, value in values.items():
        count = len(tree_flatten(value)[0])
        _collect(shapes.get(name), value, start, found)
        start += count
    return found


def _collect(shape, value, start, found):
    from mica import _C
    from mica.utils._pytree import tree_flatten

    if shape is None or not shape:
        return
    if isinstance(value, _C.TensorBase):
        pairs = shape.items() if isinstance(shape, dict) else enumerate(shape)
        for axis, size in pairs:
            if size is None or size is Dim.STATIC or isinstance(size, int):
                continue
            label = f"s{start}_{axis}" if isinstance(size, _Hint) else size
            found[start, axis % value.dim()] = label
        return
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        count = len(tree_flatten(value[key])[0])
        inner = shape.get(key) if isinstance(shape, dict) else shape[key]
        _collect(inner, value[key], start, found)
        start += count
