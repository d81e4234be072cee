"""Small functions of shapes and strides that packages share with torch."""

from mica import _C

__all__ = [
    "check_significant_strides",
    "make_channels_last_strides_for",
    "make_contiguous_strides_for",
    "suggest_memory_format",
]


def make_contiguous_strides_for(shape, row_major=True):
    """The strides of a contiguous tensor of this shape; with row_major=False, of matrices that are stored by columns."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    strides.reverse()
    if not row_major and len(shape) >= 2:
        strides[-2:] = [1, max(shape[-2], 1)]
    return tuple(strides)


def make_channels_last_strides_for(shape):
    """The strides of a tensor of pictures or volumes whose channels lie side by side."""
    if len(shape) not in (3, 4, 5):
        raise RuntimeError(f"no channels last format strides exist in {len(shape)} dimensions")
    order = (0, *range(2, len(shape)), 1) if len(shape) > 3 else (1, 2, 0)
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def suggest_memory_format(x):
    """The memory format in which a strided tensor lies."""
    if x.layout == _C.strided:
        if x.dim() == 4 and x.is_contiguous(memory_format=_C.channels_last) and not x.is_contiguous():
            return _C.channels_last
        if x.dim() == 5 and x.is_contiguous(memory_format=_C.channels_last_3d) and not x.is_contiguous():
            return _C.channels_last_3d
    return _C.contiguous_format


def get_computation_dtype(dtype):
    """The dtype in which operations on a dtype are computed: a wider one for those of 16 bits."""
    wider = {_C.bfloat16: _C.float32, _C.float16: _C.float32, _C.complex32: _C.complex64}
    return wider.get(dtype, dtype)


def is_boolean_dtype(dtype):
    return dtype is _C.bool


def is_complex_dtype(dtype):
    return dtype.is_complex


def is_float_dtype(dtype):
    return dtype.is_floating_point


def is_integer_dtype(dtype):
    """Whether a dtype is one of whole numbers, which bool is not."""
    return not (dtype.is_floating_point or dtype.is_complex or is_boolean_dtype(dtype))


def check_significant_strides(a, b, *, only_cuda=True, allow_rhs_unbacked=False):
    """Whether two tensors of one shape lie alike: (yes or no, the first dimension that differs)."""
    if (only_cuda and "cuda" not in (a.device.type, b.device.type)) or a.numel() == 0:
        return True, None
    for dim, size in enumerate(a.shape):
        if size > 1 and a.stride(dim) != b.stride(dim):
            return False, dim
    return True, None
