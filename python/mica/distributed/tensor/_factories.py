"""New spread tensors: zeros, ones, one value, random numbers."""

import mica
from mica.distributed.tensor._api import DTensor, _current_mesh
from mica.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta, contiguous_strides
from mica.distributed.tensor._utils import compute_local_shape, normalize_placements


def _made(function, size, dtype, layout, requires_grad, device_mesh, placements, is_random=False):
    if len(size) == 1 and isinstance(size[0], (list, tuple, mica.Size)):
        size = tuple(size[0])
    mesh = _current_mesh(device_mesh)
    placements = normalize_placements(placements, mesh, len(size))
    if layout not in (None, mica.strided):
        raise AssertionError(f"layout value not supported! It is {layout}, and a DTensor is strided")
    dtype = dtype or mica.get_default_dtype()
    options = {"dtype": dtype, "device": mesh.device_type}
    if is_random:
        from mica.distributed.tensor._random import part_of, synchronized

        synchronized(mesh)
        local = part_of(function(size, **options), mesh, placements).clone(memory_format=mica.contiguous_format)
    else:
        local = function(compute_local_shape(size, mesh, placements), **options)
    meta = TensorMeta(tuple(size), contiguous_strides(size), dtype)
    return DTensor(local, DTensorSpec(mesh, placements, meta), requires_grad=requires_grad)


def ones(*size, dtype=None, layout=None, requires_grad=False, device_mesh=None, placements=None):
    """A spread tensor of ones."""
    return _made(mica.ones, size, dtype, layout, requires_grad, device_mesh, placements)


def empty(*size, dtype=None, layout=None, requires_grad=False, device_mesh=None, placements=None):
    """A spread tensor whose elements are what memory held."""
    return _made(mica.empty, size, dtype, layout, requires_grad, device_mesh, placements)


def full(size, fill_value, *, dtype=None, layout=None, requires_grad=False, device_mesh=None, placements=None):
    """A spread tensor of one value."""
    if dtype is None and not isinstance(fill_value, float):
        dtype = mica.tensor(fill_value).dtype

    def make(shape, **options):
        return mica.full(shape, fill_value, **options)

    return _made(make, (tuple(size),), dtype, layout, requires_grad, device_mesh, placements)


def zeros(*size, requires_grad=False, dtype=None, layout=None, device_mesh=None, placements=None):
    """A spread tensor of zeros."""
    return _made(mica.zeros, size, dtype, layout, requires_grad, device_mesh, placements)


def rand(*size, requires_grad=False, dtype=None, layout=None, device_mesh=None, placements=None):
    """A spread tensor of random numbers between 0 and 1: those that one process would draw."""
    return _made(mica.rand, size, dtype, layout, requires_grad, device_mesh, placements, True)


def randn(*size, dtype=None, layout=None, requires_grad=False, device_mesh=None, placements=None):
    """A spread tensor of normally distributed numbers: those that one process would draw."""
    return _made(mica.randn, size, dtype, layout, requires_grad, device_mesh, placements, True)
