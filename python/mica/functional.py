"""Functions whose arguments only Python can take apart: several tensors in a row, optional results, subscript lists."""

from mica import _C
from mica._functions.once import warn_once
from mica._functions.wrapping import wraps as _wraps

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "block_diag",
    "broadcast_shapes",
    "broadcast_tensors",
    "cartesian_prod",
    "chain_matmul",
    "einsum",
    "histogramdd",
    "lu",
    "meshgrid",
    "nonzero",
    "split",
    "split_copy",
    "split_with_sizes_copy",
    "tensordot",
    "unbind_copy",
    "unique",
    "unique_consecutive",
]


def _overridable(function):
    """The function, after asking arguments that have a __torch_function__ of their own."""

    @_wraps(function)
    def overridable(*args, **kwargs):
        candidates = args
        if args and isinstance(args[0], (list, tuple)):
            candidates = args[0]
        elif len(args) == 2 and isinstance(args[0], str) and isinstance(args[1], (list, tuple)):
            # einsum(equation, operands): overrides see einsum(equation, *operands), as with torch.
            args = (args[0], *args[1])
            candidates = args
        if _C._has_torch_function(candidates):
            return _C._handle_torch_function(overridable, candidates, *args, **kwargs)
        return function(*args, **kwargs)

    return overridable


def _listed(tensors):
    """The tensors of f(a, b) and of f([a, b])."""
    return tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors


@_overridable
def broadcast_tensors(*tensors):
    """The tensors expanded to the shape that they broadcast to."""
    return _C._broadcast_tensors(_listed(tensors))


def _is_open(size):
    return type(size).__name__ == "SymInt"


def broadcast_shapes(*shapes):
    """The shape that tensors of the given shapes broadcast to."""
    for shape in shapes:
        if not isinstance(shape, (int, tuple, list)) and not _is_open(shape):
            raise RuntimeError(f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {shape}")
    shapes = [tuple(shape) if isinstance(shape, (tuple, list)) else (shape,) for shape in shapes]
    result = [1] * max((len(shape) for shape in shapes), default=0)
    for position, shape in enumerate(shapes):
        for dim in range(-1, -1 - len(shape), -1):
            if shape[dim] < 0:
                raise ValueError("Attempting to broadcast a dimension with negative length!")
            if shape[dim] in (1, result[dim]):
                continue
            if result[dim] != 1:
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {shape[dim]} at {dim}! Mismatching argument at "
                    f"index {position} had {shape}; but expected shape should be broadcastable to {result}"
                )
            result[dim] = shape[dim]
    if any(map(_is_open, result)):
        return tuple(result)
    return _C.Size(result)


@_overridable
def split(tensor, split_size_or_sections, dim=0):
    """Views of equal size along a dimension, the last one smaller if need be; or of the sizes listed."""
    return tensor.split(split_size_or_sections, dim)


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _subscript(n):
    if n is Ellipsis:
        return "..."
    if not 0 <= n < len(_LETTERS):
        raise ValueError("einsum(): subscript in subscript list is not within the valid range [0, 52)")
    return _LETTERS[n]


@_overridable
def einsum(*args):
    """A sum of products over the subscripts that the result lacks: "ij,jk->ik" is a matrix product.

    Beside an equation and its operands it takes operands each followed by the list of its subscripts, and after the
    last pair the list of the result's.
    """
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its "
            "subscripts list"
        )
    if isinstance(args[0], _C.Tensor):
        equation = ",".join("".join(map(_subscript, subscripts)) for subscripts in args[1::2])
        if len(args) % 2:
            equation += "->" + "".join(map(_subscript, args[-1]))
        return _C._einsum(equation, list(args[: len(args) // 2 * 2 : 2]))
    equation, *operands = args
    return _C._einsum(equation, list(_listed(operands)))


@_overridable
def meshgrid(*tensors, indexing=None):
    """Grids of coordinates: each one-dimensional tensor expanded over the dimensions of the others."""
    if indexing is None:
        warn_once(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.", stacklevel=2
        )
    return _C._meshgrid(_listed(tensors), indexing="ij" if indexing is None else indexing)


@_overridable
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct elements, or the distinct slices along a dimension.

    With `return_inverse` also the index of each input element among them, with `return_counts` how often each comes."""
    if dim is None:
        values, inverse, counts = _C._unique2(input, sorted, return_inverse, return_counts)
    else:
        values, inverse, counts = _C._unique_dim(input, dim, sorted, return_inverse, return_counts)
    return _chosen(values, inverse, counts, return_inverse, return_counts)


@_overridable
def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The elements, or slices along a dimension, without the repetitions that follow one another."""
    values, inverse, counts = _C._unique_consecutive(input, return_inverse, return_counts, dim)
    return _chosen(values, inverse, counts, return_inverse, return_counts)


def _chosen(values, inverse, counts, return_inverse, return_counts):
    chosen = (values, *([inverse] if return_inverse else []), *([counts] if return_counts else []))
    return chosen if len(chosen) > 1 else values


def _into(out, result):
    """The result, written to `out` if there is one."""
    if out is None:
        return result
    if out.dtype != result.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {result.dtype}, but got {out.dtype} instead")
    if out.shape != result.shape and out.requires_grad:
        if _C.is_grad_enabled():
            raise RuntimeError(
                "tensordot(): the 'out' tensor was specified and requires gradients, and its shape does not match the "
                f"expected result: it is {list(out.shape)}, and the result is {list(result.shape)}. Leave 'out' away, "
                "or give one of this shape or one that does not require gradients."
            )
        out.data = out.data.resize_(result.shape)
    elif out.shape != result.shape:
        if out.numel():
            import warnings  # imported here, so that importing mica does not load it

            warnings.warn(
                f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not match "
                f"the required output shape {list(result.shape)}. This behavior is deprecated, and in a future PyTorch "
                "release outputs will not be resized unless they have zero elements. You can explicitly reuse an out tensor "
                "t by resizing it, inplace, to zero elements with t.resize_(0).",
                stacklevel=3,
            )
        out.resize_(result.shape)
    return out.copy_(result)


def _pieces_into(name, out, pieces, resized):
    """The pieces, or None if they were written to a list of tensors given as out."""
    if out is None:
        return pieces
    if len(out) != len(pieces):
        raise RuntimeError(f"{name} expected an out= argument of size {len(pieces)}, got size {len(out)}")
    for target, piece in zip(out, pieces, strict=True):
        if resized and target.shape != piece.shape:
            target.resize_(piece.shape)
        target.copy_(piece)
    return None


@_overridable
def unbind_copy(input, dim=0, *, out=None):
    """Copies of all slices of a dimension; with `out`, a list of tensors, they are written there."""
    return _pieces_into("unbind_copy_int_out", out, _C.unbind_copy(input, dim), True)


@_overridable
def split_copy(tensor, split_size, dim=0, *, out=None):
    """Copies of the pieces of `split`; with `out`, a list of tensors of their sizes, they are written there."""
    return _pieces_into("split_copy_Tensor_out", out, _C.split_copy(tensor, split_size, dim), False)


@_overridable
def split_with_sizes_copy(input, split_sizes, dim=0, *, out=None):
    """Copies of pieces of the given sizes; with `out`, a list of tensors, they are written there."""
    return _pieces_into("split_with_sizes_copy_out", out, _C.split_with_sizes_copy(input, split_sizes, dim), True)


@_overridable
def tensordot(a, b, dims=2, out=None):
    """The product of two tensors summed over dimensions: the last of one with the first of the other, or those listed."""
    if isinstance(dims, _C.Tensor):
        dims = dims.tolist() if dims.numel() > 1 else int(dims)
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        dims = (list(range(-dims, 0)), list(range(dims)))
    elif not isinstance(dims, (tuple, list)):
        raise RuntimeError(f"tensordot expects dims to be int or two lists of int, but got dims={dims}")
    dims_a, dims_b = ([each] if isinstance(each, int) else list(each) for each in dims)
    return _into(out, _C._tensordot(a, b, dims_a, dims_b))


@_overridable
def cartesian_prod(*tensors):
    """All combinations of one element from each tensor, one to a row."""
    return _C._cartesian_prod(_listed(tensors))


@_overridable
def block_diag(*tensors):
    """A matrix with the given ones along its diagonal and zeros elsewhere."""
    return _C._block_diag([each if isinstance(each, _C.Tensor) else _C.tensor(each) for each in tensors])


@_overridable
def chain_matmul(*matrices, out=None):
    """The product of several matrices, in the cheapest order."""
    warn_once(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use torch.linalg.multi_dot "
        "instead, which accepts a list of two or more tensors rather than multiple parameters.",
        stacklevel=2,
    )
    return _into(out, _C._chain_matmul(_listed(matrices)))


@_overridable
def lu(A, pivot=True, get_infos=False, out=None):
    """L and U in one matrix and the rows exchanged; `torch.linalg.lu_factor` is its better form."""
    warn_once(
        "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and will be removed in a "
        "future PyTorch release.\nLU, pivots = torch.lu(A, compute_pivots)\nshould be replaced with\n"
        "LU, pivots = torch.linalg.lu_factor(A, compute_pivots)\nand\n"
        "LU, pivots, info = torch.lu(A, compute_pivots, get_infos=True)\nshould be replaced with\n"
        "LU, pivots, info = torch.linalg.lu_factor_ex(A, compute_pivots)",
        stacklevel=2,
    )
    results = _C._lu_with_info(A, pivot=pivot)
    chosen = tuple(results) if get_infos else tuple(results)[:2]
    return chosen if out is None else tuple(map(_into, out, chosen))


def _at_least(function, tensors):
    if len(tensors) == 1 and not isinstance(tensors[0], (list, tuple)):
        return function(tensors[0])
    return tuple(map(function, _listed(tensors)))


@_overridable
def atleast_1d(*tensors):
    """Each tensor with at least one dimension."""
    return _at_least(_C._atleast_1d, tensors)


@_overridable
def atleast_2d(*tensors):
    """Each tensor with at least two dimensions."""
    return _at_least(_C._atleast_2d, tensors)


@_overridable
def atleast_3d(*tensors):
    """Each tensor with at least three dimensions."""
    return _at_least(_C._atleast_3d, tensors)


@_overridable
def histogramdd(input, bins, *, range=None, weight=None, density=False):
    """A histogram in as many dimensions as the input's rows have numbers, and the edges of its bins."""
    if isinstance(bins, int):
        bins = [bins] * input.size(-1)
    return _C._histogramdd(input, bins, range=range, weight=weight, density=density)


nonzero = _C.nonzero = getattr(_C, "_nonzero", _C.nonzero)


for _function in (histogramdd, split_copy, split_with_sizes_copy, unbind_copy):
    _function.__module__ = "mica"  # as torch has them


def __getattr__(name):
    # Functions that torch has here as well, and Mica in the package.
    if name in ("cdist", "istft", "norm", "pca_lowrank", "stft", "svd_lowrank", "unravel_index"):
        import mica

        return getattr(mica, name)
    if name == "F":  # torch's module imports the functions of networks by this name, and programs find them there
        from mica.nn import functional

        return functional
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
