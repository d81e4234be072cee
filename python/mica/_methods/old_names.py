"""Tensor's methods that torch keeps for old programs, or for devices and functions that are elsewhere."""

from mica import _C


def new(self, *args, **kwargs):
    """A tensor of the same dtype and device, from sizes or data: the constructor of old."""
    device = _C.device(kwargs.pop("device", self.device))
    if unknown := kwargs.keys() - {"size", "data", "other"} or len(kwargs) + bool(args) > 1:
        raise TypeError(
            f"new() received an invalid combination of arguments - got {unknown if unknown is not True else kwargs.keys()}"
        )
    if self.is_quantized:
        raise RuntimeError("new(): expected a tensor that is not quantized: its scale would be unknown")
    if self.is_sparse:
        size = kwargs.get("size", args[0] if len(args) == 1 and not isinstance(args[0], int) else args)
        if kwargs.keys() - {"size"} or not isinstance(size, tuple) or not all(isinstance(n, int) for n in size):
            raise TypeError("new() of a sparse tensor takes sizes: its elements are places and values")
        import mica

        return mica.sparse_coo_tensor(size or (0,), dtype=self.dtype, device=device)
    return _C._legacy_new(self.dtype, device, args, kwargs)


def resize(self, *sizes):
    """The tensor seen with other sizes of as many elements."""
    import math
    import warnings

    warnings.warn("non-inplace resize is deprecated", stacklevel=2)
    size = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if math.prod(size) != self.numel():
        text, own = ("x".join(map(str, each)) for each in (size, self.shape))
        raise RuntimeError(
            f"requested resize to {text} ({math.prod(size)} elements in total), but the given tensor has a size of {own} "
            f"({self.numel()} elements). autograd's resize can only change the shape of a given tensor, while preserving "
            "the number of elements. "
        )
    return self.reshape(size)


def resize_as(self, tensor):
    """The tensor seen with the sizes of another one of as many elements."""
    import warnings

    warnings.warn("non-inplace resize_as is deprecated", stacklevel=2)
    return self.reshape(tensor.shape)


def is_distributed(self):
    """False: a tensor lies in one process."""
    return False


def reinforce(self, reward):
    """Removed from torch long ago."""
    raise RuntimeError("reinforce() was removed. Use torch.distributions: loss = -m.log_prob(action) * reward")


def _as_operator(name, function):
    """A method of Python 2's for an operator."""

    def method(self, *args):
        return function(self, *args)

    method.__name__, method.__doc__ = name, "A name of Python 2's."
    return method


def _of_the_package(name):
    """A function of the package, looked up when it is called, as a method."""

    def method(self, *args, **kwargs):
        import mica

        return getattr(mica, name)(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, f"As mica.{name}."
    return method


def _absent_device(name):
    def method(self, device=None, *args, **kwargs):
        raise AssertionError(f"Torch not compiled with {name.upper()} enabled")

    method.__name__, method.__doc__ = name, "Mica has no such device."
    return method


METHODS = [
    new,
    resize,
    resize_as,
    is_distributed,
    reinforce,
    *map(_of_the_package, ("eig", "hash_tensor", "lstsq", "slice_inverse", "solve", "symeig")),
    *map(_absent_device, ("ipu", "mtia", "xpu")),
    _as_operator("__div__", _C.Tensor.__truediv__),
    _as_operator("__idiv__", _C.Tensor.__itruediv__),
    _as_operator("__rdiv__", _C.Tensor.__rtruediv__),
    _as_operator("__long__", int),
    _as_operator("__nonzero__", bool),
]
