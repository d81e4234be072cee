"""torch.ops.prims: the operators that torch's decompositions end in. They promote no dtypes; shapes agree beforehand."""

import mica
from mica import _C

# torch's name -> the function here, where these differ.
_OTHER_NAMES = {
    "bessel_i0": "special.i0", "bessel_i0e": "special.i0e", "bessel_i1": "special.i1", "bessel_i1e": "special.i1e",
    "bessel_j0": "special.bessel_j0", "bessel_j1": "special.bessel_j1", "erf_inv": "erfinv", "erfcx": "special.erfcx",
    "ndtri": "special.ndtri", "rev": "flip", "shift_left": "bitwise_left_shift",
    "shift_right_arithmetic": "bitwise_right_shift", "spherical_bessel_j0": "special.spherical_bessel_j0",
    "zeta": "special.zeta", "transpose": "permute",
}  # fmt: skip
_SAME_NAMES = frozenset([
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "cat", "ceil", "clone", "conj", "conj_physical", "cos", "cosh", "digamma", "eq",
    "erf", "erfc", "exp", "exp2", "expm1", "floor", "fmax", "fmin", "fmod", "frexp", "gcd", "ge", "gt", "hypot",
    "igamma", "igammac", "imag", "isfinite", "le", "lgamma", "log", "log10", "log1p", "log2", "lt", "maximum",
    "minimum", "mul", "ne", "neg", "nextafter", "pow", "real", "reciprocal", "remainder", "reshape", "round", "rsqrt",
    "sign", "signbit", "sin", "sinh", "sqrt", "sub", "tan", "tanh", "trunc", "where",
])  # fmt: skip


def find(name):
    """The function of an operator; None if there is none."""
    own = globals().get(f"prim_{name}")
    if own is not None:
        return own
    if name not in _SAME_NAMES and name not in _OTHER_NAMES:
        return None
    owner, _, target = _OTHER_NAMES.get(name, name).rpartition(".")
    return getattr(getattr(mica, owner) if owner else mica, target)


def prim_div(self, other):
    """A quotient; of whole numbers, rounded towards zero."""
    return mica.div(self, other, rounding_mode=None if self.is_floating_point() or self.is_complex() else "trunc")


def prim_cbrt(self):
    """The real cube root."""
    return mica.copysign(self.abs().pow(1 / 3), self)


def prim_convert_element_type(a, dtype):
    """A copy of another dtype, which lies in memory as the tensor does."""
    return a.to(dtype, copy=True)


def prim_device_put(a, device, non_blocking=False):
    """A copy on a device."""
    return a.to(device, non_blocking=non_blocking, copy=True)


def prim_iota(length, *, start, step, dtype, device, requires_grad):
    """`length` whole numbers from `start` on, `step` apart."""
    made = mica.arange(length, dtype=mica.int64, device=device).mul_(step).add_(start)
    return made.to(dtype).requires_grad_(requires_grad)


def prim_full(shape, fill_value, *, dtype, device, requires_grad):
    """A tensor of one value."""
    return mica.full(shape, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)


def prim_full_like(a, fill_value, *, dtype, device, requires_grad):
    """A tensor of one value, as large as another."""
    return mica.full_like(a, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)


def prim_scalar_tensor(s, *, dtype=None, device=None):
    """A number as a tensor without dimensions."""
    return mica.scalar_tensor(s, dtype=dtype, device=device)


def prim_fill(self, value):
    """A tensor of one value in the place of another."""
    return mica.full_like(self, value)


def prim_broadcast_in_dim(a, shape, broadcast_dimensions):
    """A view of a larger shape; each dimension of `a` goes to the place that is named for it."""
    placed = [1] * len(shape)
    for size, place in zip(a.shape, broadcast_dimensions, strict=True):
        placed[place] = size
    return a.reshape(placed).expand(shape)


def prim_squeeze(a, dimensions):
    """A view without some dimensions, which are of size one."""
    return a.squeeze(tuple(dimensions))


def prim_split_dim(a, dim, outer_length):
    """A view with one dimension made two."""
    return a.unflatten(dim, (outer_length, a.shape[dim] // outer_length))


def prim_collapse_view(a, start, end):
    """A view with dimensions `start` to `end`, which is one of them, made one."""
    return a.view([*a.shape[:start], -1, *a.shape[end + 1 :]])


def prim_collapse(a, start, end):
    """A copy of collapse_view."""
    return a.flatten(start, end).clone()


def prim_view_of(a):
    """A view of the whole tensor."""
    return a.view_as(a)


def prim_copy_to(a, b):
    """Writes `b` into `a`."""
    return a.copy_(b)


def _reduction(name):
    def reduce(inp, dims, *, output_dtype=None):
        result = inp if dims is None else inp.clone() if not dims else inp
        for dim in sorted(range(inp.dim()) if dims is None else dims, reverse=True):
            result = getattr(result, name)(dim)
        return result.to(output_dtype or inp.dtype)

    reduce.__name__ = f"prim_{name}"
    reduce.__doc__ = f"{name} over dimensions, in the dtype of the tensor."
    return reduce


prim_sum, prim_prod, prim_amax, prim_amin = map(_reduction, ("sum", "prod", "amax", "amin"))


def prim_var(inp, dims, correction=1, *, output_dtype=None):
    """The variance over dimensions."""
    return _C.var(inp, dims, correction=correction).to(output_dtype or inp.dtype)


# ---- pooling with places within windows


def _parted(index, sizes):
    """An index into a volume as one for each of its dimensions."""
    parts = []
    for size in reversed(sizes):
        parts.append(index % size)
        index = index // size
    return parts[::-1]


def _joined(parts, sizes):
    index = parts[0]
    for part, size in zip(parts[1:], sizes[1:], strict=True):
        index = index * size + part
    return index


def _corners(like, dims, stride, padding):
    """Where the window of each element of a result begins, for each dimension."""
    for d in range(dims):
        shape = [1] * like.dim()
        shape[d - dims] = -1
        yield mica.arange(like.shape[d - dims], device=like.device).view(shape) * stride[d] - padding[d]


def prim__low_memory_max_pool_with_offsets(self, kernel_size, stride, padding, dilation, ceil_mode):
    """Max pooling, and where in its window each value was found."""
    dims = len(kernel_size)
    pool = mica.nn.functional.max_pool2d if dims == 2 else mica.nn.functional.max_pool3d
    values, indices = pool(self, kernel_size, stride, padding, dilation, ceil_mode, return_indices=True)
    places = _parted(indices, self.shape[-dims:])
    corners = _corners(indices, dims, stride, padding)
    within = [(place - corner) // dilation[d] for d, (place, corner) in enumerate(zip(places, corners, strict=True))]
    return values, _joined(within, kernel_size).to(mica.int8)


def prim__low_memory_max_pool_offsets_to_indices(self, kernel_size, input_size, stride, padding, dilation):
    """Places within windows as indices into the volume that was pooled."""
    dims = len(kernel_size)
    within = _parted(self.to(mica.int64), kernel_size)
    corners = _corners(self, dims, stride, padding)
    places = [corner + part * dilation[d] for d, (part, corner) in enumerate(zip(within, corners, strict=True))]
    return _joined(places, input_size)
