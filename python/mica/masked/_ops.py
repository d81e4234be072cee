"""Reductions and normalizations of the elements that a mask marks.

Masked-out elements are replaced by the operation's identity before it runs. Where all elements are masked out, the result is
the identity, or NaN for operations that have none.
"""

import functools

import mica

_NARROW_INTEGERS = (mica.uint8, mica.bool, mica.int8, mica.int16, mica.int32)


def _reduction_identity(op_name, input, *args):
    """The number that changes nothing when it takes part in an operation; None where there is none."""
    dtype = input.dtype
    floating = input.is_floating_point()
    whole = not floating and not input.is_complex() and dtype != mica.bool

    def number(value, kind=dtype):
        return mica.tensor(value, dtype=kind, device=input.device)

    op_name = op_name.rsplit(".", 1)[-1]
    if op_name in ("sum", "cumsum"):
        return number(0)
    if op_name in ("prod", "cumprod"):
        return number(1)
    if op_name in ("amax", "argmax", "logaddexp", "logsumexp"):
        if floating or (op_name == "logsumexp" and input.is_complex()):
            return number(-mica.inf)
        if whole:
            return number(mica.iinfo(dtype).min)
    elif op_name in ("amin", "argmin"):
        if floating:
            return number(mica.inf)
        if whole:
            return number(mica.iinfo(dtype).max)
    elif op_name in ("mean", "var", "std"):
        return None
    elif op_name == "norm":
        least = bool(args) and args[0] == float("-inf")
        if least and not floating:
            raise AssertionError(f"input must be floating point, got {dtype}")
        return number(mica.inf if least else 0)
    elif op_name == "median":
        return number(mica.nan, dtype if floating else mica.float)
    raise NotImplementedError(f"identity of {op_name} on {dtype} input")


def _canonical_dim(dim, ndim):
    """Dimensions as a tuple of numbers that are not negative; all of them for None."""
    if dim is None or (isinstance(dim, (tuple, list)) and len(dim) == 0):
        return tuple(range(ndim))
    dims = []
    for d in sorted((dim,) if isinstance(dim, int) else dim):
        ndim_ = max(ndim, 1)
        if not -ndim_ <= d < ndim_:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-ndim_}, {ndim_ - 1}], but got {d})"
            )
        if d % ndim_ in dims:
            raise RuntimeError(f"dim={d % ndim_} appears multiple times in the list of dims")
        dims.append(d % ndim_)
    return tuple(sorted(dims)) if ndim else ()


def _one_dim(dim, ndim):
    """The dimension as a number that is not negative; 0 where there are none."""
    return (*_canonical_dim(dim, ndim), 0)[0]


def _input_mask(input, *args, **kwargs):
    """The mask in the shape of the input."""
    mask = kwargs.get("mask")
    if mask is None:
        raise ValueError("input mask is not available: the argument mask is None")
    if mask.shape == input.shape:
        return mask
    if mask.ndim > input.ndim:
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    return mica.broadcast_to(mask.clone(), input.shape).to(dtype=mica.bool)


def _output_mask(op, input, *args, **kwargs):
    """Which elements of a result something marked went into."""
    name = op.__name__
    if kwargs.get("mask") is None:
        raise ValueError("_output_mask expects a mask")
    inside = _input_mask(input, mask=kwargs["mask"])
    if name in ("softmax", "log_softmax", "softmin", "normalize", "cumsum", "cumprod"):
        return inside
    at = 1 if name == "norm" else 0
    dim = args[at] if len(args) > at else kwargs.get("dim", -1 if name == "median" else None)
    result = inside
    for d in reversed(_canonical_dim(dim, input.ndim)):
        result = result.any(dim=d, keepdim=bool(kwargs.get("keepdim", False)))
    return result


def _split(input, mask):
    """The plain data of an input and its mask, its own where it is a masked tensor."""
    from mica.masked.maskedtensor.core import MaskedTensor

    if isinstance(input, MaskedTensor):
        input, mask = input.get_data(), input.get_mask() if mask is None else mask
    if mask is not None and input.layout == mica.strided and mask.layout != mica.strided:
        mask = mask.to_dense()  # places that a sparse mask does not hold are masked out
    return input, mask


def _require_strided(name, input):
    if input.layout != mica.strided:
        raise ValueError(f"masked {name} expects strided tensor (got {input.layout} tensor)")


def _combine_input_and_mask(op, input, mask, *args):
    """The input with the operation's identity in the place of masked-out elements."""
    if not callable(op):
        raise ValueError(f"_combine_input_and_mask expected masked operation (got {type(op).__name__} object)")
    return _filled(op.__name__, input, mask, *args)


def _filled(name, input, mask, *args):
    data, mask = _split(input, mask)
    _require_strided(name, data)
    if mask is None:
        return data
    return mica.where(_input_mask(data, mask=mask), data, _reduction_identity(name, data, *args))


def _of_sparse_too(function):
    """Let a reduction take COO and CSR tensors with a mask of that layout: what the mask leaves out stays unspecified."""
    name = function.__name__

    @functools.wraps(function)
    def reduced(input, dim=None, *, keepdim=False, dtype=None, mask=None):
        layout = input.layout
        if layout == mica.strided:
            return function(input, dim, keepdim=keepdim, dtype=dtype, mask=mask)
        input, mask = _split(input, mask)
        if layout not in (mica.sparse_coo, mica.sparse_csr):
            raise ValueError(f"masked {name} expects strided, sparse_coo or sparse_csr tensor (got {layout} tensor)")
        if mask is None and name not in ("sum", "prod"):
            kind = str(layout).removeprefix("torch.")
            raise ValueError(f"masked {name} expects explicit mask for {kind} tensor input")
        if layout == mica.sparse_csr and not keepdim:
            raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
        from mica.masked.maskedtensor import _sparse_parts as _sparse

        if mask is None:
            marked = _sparse.all_marked(input)
        else:
            marked = mask if mask.layout == mica.strided else mask.to_dense()
            marked = marked.expand(input.shape)
        result = function(input.to_dense(), dim, keepdim=keepdim, dtype=dtype, mask=marked)
        if layout == mica.sparse_coo and len(_canonical_dim(dim, input.ndim)) == input.ndim:
            return result.to_sparse()  # one number: nothing is left out
        left = marked
        for d in reversed(_canonical_dim(dim, input.ndim)):
            left = left.any(d, keepdim=keepdim)
        return _sparse.at_marked(result, left, layout)

    return reduced


def _sum_dtype(input, dtype):
    if dtype is not None:
        return dtype
    return mica.int64 if input.dtype in _NARROW_INTEGERS else input.dtype


@_of_sparse_too
def sum(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The sum of what is marked; zero of nothing."""
    dims = _canonical_dim(dim, input.ndim)
    return mica.sum(_filled("sum", input, mask), dims, bool(keepdim), dtype=_sum_dtype(input, dtype))


@_of_sparse_too
def prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The product of the marked elements; one where none is marked. An empty list of dimensions, unlike an empty tuple, means
    no dimension."""
    result = _filled("prod", input, mask).to(dtype=_sum_dtype(input, dtype))
    for d in () if dim == [] else reversed(_canonical_dim(dim, input.ndim)):
        result = result.prod(dim=d, keepdim=bool(keepdim))
    return result


def cumsum(input, dim, *, dtype=None, mask=None):
    """Sums of what is marked so far."""
    dtype = input.dtype if dtype is None else dtype
    return mica.cumsum(_filled("cumsum", input, mask), _one_dim(dim, input.ndim), dtype=dtype).to(dtype=dtype)


def cumprod(input, dim, *, dtype=None, mask=None):
    """Products of what is marked so far."""
    dtype = input.dtype if dtype is None else dtype
    return mica.cumprod(_filled("cumprod", input, mask), _one_dim(dim, input.ndim), dtype=dtype).to(dtype=dtype)


@_of_sparse_too
def amax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The largest of what is marked."""
    result = mica.amax(_filled("amax", input, mask), _canonical_dim(dim, input.ndim), bool(keepdim))
    return result.to(dtype=input.dtype if dtype is None else dtype)


@_of_sparse_too
def amin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The smallest of what is marked."""
    result = mica.amin(_filled("amin", input, mask), _canonical_dim(dim, input.ndim), bool(keepdim))
    return result.to(dtype=input.dtype if dtype is None else dtype)


def argmax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Where the largest of what is marked is."""
    result = mica.argmax(_filled("argmax", input, mask), dim, bool(keepdim))
    return result.to(dtype=input.dtype if dtype is None else dtype)


def argmin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Where the smallest of what is marked is."""
    result = mica.argmin(_filled("argmin", input, mask), dim, bool(keepdim))
    return result.to(dtype=input.dtype if dtype is None else dtype)


def _count(input, mask, dim, keepdim):
    if mask is None:
        mask = mica.ones(input.shape, dtype=mica.int64, device=input.device)
    else:
        mask = _input_mask(input, mask=mask)
    return mask.sum(dim=_canonical_dim(dim, input.ndim), keepdim=bool(keepdim))


@_of_sparse_too
def mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The mean of what is marked; NaN of nothing."""
    source = "Input" if dtype is None else "Optional"
    dtype = input.dtype if dtype is None else dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(
            f"mean(): Could not infer output dtype. {source} dtype must be either a floating point or complex dtype. "
            f"Got: {dtype}"
        )
    data, mask = _split(input, mask)
    return sum(data, dim, keepdim=keepdim, dtype=dtype, mask=mask) / _count(data, mask, dim, keepdim)


def median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    """The median of the marked elements; NaN where none is marked."""
    data, mask = _split(input, mask)
    dtype = data.dtype if dtype is None else dtype
    floating = data.is_floating_point()
    filled = _filled("median", data if floating else data.to(dtype=mica.float), mask)
    result = mica.nanmedian(filled, _one_dim(dim, data.ndim), keepdim).values
    if floating:
        return result
    if mica.isnan(result).any():
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    return result.to(dtype=dtype)


def logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The logarithm of the sum of the exponentials of the marked elements."""
    result = mica.logsumexp(_filled("logsumexp", input, mask), _canonical_dim(dim, input.ndim), keepdim=keepdim)
    return result.to(dtype=input.dtype if dtype is None else dtype)


def logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    """log(exp(a) + exp(b)), without the masked-out elements of either."""
    a, b = _filled("logaddexp", input, input_mask), _filled("logaddexp", other, other_mask)
    return mica.logaddexp(a, b).to(dtype=input.dtype if dtype is None else dtype)


def norm(input, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The vector norm of what is marked."""
    dtype = input.dtype if dtype is None else dtype
    filled = _filled("norm", input, mask, ord)
    return mica.linalg.vector_norm(filled, ord, _canonical_dim(dim, input.ndim), bool(keepdim), dtype=dtype)


def var(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """The variance of the marked elements; NaN where none is marked."""
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    if correction is None:
        correction = 1.0 if unbiased is None or unbiased else 0.0
    data, mask = _split(input, mask)
    _require_strided("std/var", data)
    dtype = data.dtype if dtype is None and (data.is_floating_point() or data.is_complex()) else dtype
    dtype = mica.float32 if dtype is None else dtype
    compute = dtype if dtype.is_floating_point or dtype.is_complex else mica.float32
    count = _count(data, mask, dim, True)
    away = data - sum(data, dim, keepdim=True, dtype=dtype, mask=mask) / count
    total = sum(away * away.conj(), dim, keepdim=keepdim, dtype=compute, mask=mask)
    count = count if keepdim else count.reshape(total.shape)
    if correction != 0:
        count = (count.to(total.real.dtype if compute.is_complex else compute) - correction).clamp(min=0)
    return (total / count).to(dtype=dtype)


def std(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """The standard deviation of the marked elements; NaN where none is marked."""
    return mica.sqrt(var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask))


def _normalized(function, identity, input, dim, dtype, mask):
    dim = _one_dim(dim, input.ndim)
    return function(_filled(identity, input, mask), dim, dtype=input.dtype if dtype is None else dtype)


def softmax(input, dim, *, dtype=None, mask=None):
    """Softmax over what is marked; zero elsewhere."""
    return _normalized(mica.nn.functional.softmax, "amax", input, dim, dtype, mask)


def log_softmax(input, dim, *, dtype=None, mask=None):
    """The logarithm of softmax over the marked elements; -inf elsewhere."""
    return _normalized(mica.nn.functional.log_softmax, "amax", input, dim, dtype, mask)


def softmin(input, dim, *, dtype=None, mask=None):
    """Softmin over what is marked; zero elsewhere."""
    return _normalized(mica.nn.functional.softmin, "amin", input, dim, dtype, mask)


def normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    """What is marked by its norm; zero elsewhere."""
    dtype = input.dtype if dtype is None else dtype
    length = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled("sum", input, mask) / mica.maximum(length, length.new_full([], eps))
