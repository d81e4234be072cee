"""Gradual types of tensors: a type says of each dimension how large it is, or `Dyn` where that is unknown."""

__all__ = ["Dyn", "TensorType", "is_consistent", "is_more_precise"]


class TensorType:
    """The type of tensors of these sizes, written `TensorType((1, 2, Dyn))` or `TensorType[1, 2, Dyn]`."""

    def __init__(self, dim):
        # Annotations of this form are written into a graph's code as those of typing are.
        self.__origin__ = TensorType
        self.__args__ = dim

    def __class_getitem__(cls, dims):
        return cls(dims if isinstance(dims, tuple) else (dims,))

    @property
    def dims(self):
        return self.__args__

    def __eq__(self, other):
        return list(self.dims) == list(other.dims) if isinstance(other, type(self)) else False

    def __hash__(self):
        return hash((TensorType, tuple(self.dims)))

    def __repr__(self):
        return f"TensorType[{self.dims}]"


class _DynType:
    """The type or the size of which nothing is known."""

    def __init__(self):
        self.__name__ = "_DynType"  # a graph's code asks a type for its name

    def __eq__(self, other):
        return isinstance(other, type(self))

    def __hash__(self):
        return hash(_DynType)

    def __repr__(self):
        return "Dyn"


Dyn = _DynType()


def is_consistent(t1, t2):
    """Whether a value may have both types. An unknown type or size is consistent with any other."""
    return _agree(t1, t2, lambda a, b: a == Dyn or b == Dyn or _is_variable(a) or _is_variable(b))


def is_more_precise(t1, t2):
    """Whether `t1` says all that `t2` says. A type is as precise as itself."""
    return _agree(t1, t2, lambda _, b: b == Dyn)


def _agree(t1, t2, anyway):
    """Whether types are equal, size by size, but for what agrees anyway."""
    if anyway(t1, t2) or t1 == t2:
        return True
    if not (isinstance(t1, TensorType) and isinstance(t2, TensorType)) or len(t1.dims) != len(t2.dims):
        return False
    return all(_agree(a, b, anyway) for a, b in zip(t1.dims, t2.dims, strict=True))


def _is_variable(value):
    from mica.fx.experimental.unification import Var

    return isinstance(value, Var)
