"""Rules for Fourier transforms, matrices, searches, scattered slices, copies of views, and what changes its own shape."""

from mica import _C
from mica.func import _batch_rules_views  # noqa: F401 - the rules of views come before those of their copies
from mica.func._batch_dims import align, many_dims, one_dim
from mica.func._batched import RULES, Plain, check_first_is_batched, rule

Tensor = _C.Tensor


def _only_first(call):
    return call.is_batched(call.args[0]) and not any(
        call.is_batched(x) for x in (*call.args[1:], *call.kwargs.values())
    )


# ------------------------------------------------------------------------------------------------ Fourier transforms
@rule("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
def _transform(call):
    if not _only_first(call) or call.args[0].dim() == 0:
        return NotImplemented
    value, args, kwargs = call.value(call.args[0]), list(call.rest()), dict(call.kwargs)
    rank = value.dim() - 1
    if len(args) > 1:
        args[1] = one_dim(args[1], rank)
    else:
        kwargs["dim"] = one_dim(kwargs.get("dim", -1), rank)
    return call.func(value, *args, **kwargs)


_ALL_DIMS = ("fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn")


@rule("fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2", *_ALL_DIMS)
def _transform_of_many(call):
    if not _only_first(call) or call.args[0].dim() == 0:
        return NotImplemented
    value, args, kwargs = call.value(call.args[0]), list(call.rest()), dict(call.kwargs)
    rank = value.dim() - 1
    size = args[0] if args else kwargs.get("s")
    dims = args[1] if len(args) > 1 else kwargs.get("dim", None if call.name in _ALL_DIMS else (-2, -1))
    if dims is None:
        dims = range(-(rank if size is None else len(size)), 0)
    placed = [one_dim(d, rank) for d in ([dims] if isinstance(dims, int) else dims)]
    if len(args) > 1:
        args[1] = placed
    else:
        kwargs["dim"] = placed
    return call.func(value, *args, **kwargs)


@rule("fftshift", "ifftshift")
def _shift(call):
    value = call.value(call.args[0])
    rank = value.dim() - 1
    if rank == 0:
        return NotImplemented
    dims = call.argument(1, "dim")
    return call.func(value, many_dims(range(rank) if dims is None else dims, rank))


@rule("stft", "istft")
def _short_time(call):
    if not _only_first(call):
        return NotImplemented
    value = call.value(call.args[0])
    alone = 1 if call.name == "stft" else 2  # dimensions of an example without a batch of its own
    if value.dim() - 1 == alone:
        return call.func(value, *call.rest(), **call.kwargs)
    return call.func(value.flatten(0, 1), *call.rest(), **call.kwargs).unflatten(0, value.shape[:2])


# ------------------------------------------------------------------------------------------------ matrices
@rule("matrix_norm", "cond")
def _of_a_matrix(call):
    dims = call.argument(2, "dim", (-2, -1)) if call.name == "matrix_norm" else (-2, -1)
    if not _only_first(call) or any(d >= 0 for d in dims) or call.args[0].dim() < 2:
        return NotImplemented  # one example refuses: with the batch a vector would pass for a matrix
    return call.func(call.value(call.args[0]), *call.rest(), **call.kwargs)


@rule("ldl_factor", "ldl_factor_ex", "geqrf", "lu_unpack", "ldl_solve", "householder_product", "orgqr", "ormqr",
      "solve_ex", "cdist")  # fmt: skip
def _of_matrices(call):
    """Operations on the last two dimensions of every tensor, or the last of a list of numbers for each matrix."""
    tensors = [x for x in (*call.args, *call.kwargs.values()) if isinstance(x, Tensor)]
    ranks = {x.dim() for x in tensors}
    if tensors[0].dim() < 2 or tensors[-1].dim() < (2 if call.name in ("ldl_solve", "ormqr", "cdist") else 1):
        return NotImplemented  # one example refuses a vector, which with the batch would pass for a matrix
    if call.name == "cdist" and len(ranks) > 1:
        return NotImplemented
    if call.name == "solve_ex" and tensors[1].dim() != tensors[0].dim():
        return NotImplemented
    return call.func(*[call.full(x) for x in call.args], **{k: call.full(x) for k, x in call.kwargs.items()})


@rule("vander", space="linalg")
def _vander(call):
    return call.func(call.value(call.args[0]), **call.kwargs) if call.args[0].dim() else NotImplemented


@rule("addr")
def _addr(call):
    first, a, b = call.args[:3]
    outer = call.full(a).unsqueeze(2) * call.full(b).unsqueeze(1)
    alpha, beta = call.kwargs.get("alpha", 1), call.kwargs.get("beta", 1)
    first, outer = align(call, [first, _wrapped(call, outer)])
    return alpha * outer if beta == 0 else beta * first + alpha * outer


def _wrapped(call, value):
    from mica.func._batched import wrap

    return wrap(value, call.level)


@rule("kron")
def _kron(call):
    a, b = (call.full(x) for x in call.args)
    if a.dim() != b.dim():
        return NotImplemented
    rank = a.dim() - 1
    for d in range(rank):
        a, b = a.unsqueeze(2 * d + 2), b.unsqueeze(2 * d + 1)
    product = a * b
    return product.reshape(
        product.shape[0], *(product.shape[2 * d + 1] * product.shape[2 * d + 2] for d in range(rank))
    )


# ------------------------------------------------------------------------------------------------ searches
@rule("bucketize")
def _bucketize(call):
    if not _only_first(call):
        return NotImplemented
    return call.func(call.value(call.args[0]), *call.rest(), **call.kwargs)


@rule("searchsorted")
def _searchsorted(call):
    edges, values = call.args[:2]
    if not isinstance(values, Tensor) or call.kwargs.get("sorter") is not None:
        return NotImplemented
    if not call.is_batched(edges):
        return call.func(edges, call.value(values), **call.kwargs) if edges.dim() == 1 else NotImplemented
    if edges.dim() == 1 and values.dim() != 1:  # any shape of values: they are one row for each example
        found = call.func(call.value(edges), call.full(values).reshape(call.size, -1), **call.kwargs)
        return found.reshape(call.size, *values.shape)
    return call.func(call.value(edges), call.full(values).contiguous(), **call.kwargs)


@rule("isin")
def _isin(call):
    if not _only_first(call):
        return NotImplemented
    return call.func(call.value(call.args[0]), *call.rest(), **call.kwargs)


@rule("take")
def _take(call):
    first, index = call.args
    value, where = call.full(first).reshape(call.size, -1), call.full(index)
    where = _C.where(where < 0, where + value.shape[1], where)
    return value.gather(1, where.reshape(call.size, -1)).reshape(where.shape)


@rule("aminmax")
def _aminmax(call):
    value, dim = call.value(call.args[0]), call.kwargs.get("dim")
    keepdim = call.kwargs.get("keepdim", False)
    rank = value.dim() - 1
    if rank == 0:
        return NotImplemented
    if dim is not None:
        return value.aminmax(dim=one_dim(dim, rank), keepdim=keepdim)
    made = value.flatten(1).aminmax(dim=1)
    shape = (value.shape[0], *[1] * rank) if keepdim else (value.shape[0],)
    return type(made)((made.min.reshape(shape), made.max.reshape(shape)))


# ------------------------------------------------------------------------------------------------ slices
@rule("select_scatter", "slice_scatter")
def _slice_scatter(call):
    values = [call.full(x) for x in call.args[:2]]
    rank = call.args[0].dim()
    args, kwargs = list(call.rest(2)), dict(call.kwargs)
    if args:
        args[0] = one_dim(args[0], rank)
    else:
        kwargs["dim"] = one_dim(kwargs.get("dim", 0), rank)
    return call.func(*values, *args, **kwargs)


@rule("diagonal_scatter")
def _diagonal_scatter(call):
    values = [call.full(x) for x in call.args[:2]]
    rank = call.args[0].dim()
    offset, first, second = (call.argument(i, n, d) for i, n, d in ((2, "offset", 0), (3, "dim1", 0), (4, "dim2", 1)))
    return call.func(*values, offset, one_dim(first, rank), one_dim(second, rank))


@rule("flipud", "fliplr")
def _flip(call):
    value = call.value(call.args[0])
    at = 1 if call.name == "flipud" else 2
    return value.flip(at) if value.dim() > at else NotImplemented


@rule("rot90")
def _rot90(call):
    dims = call.argument(2, "dims", (0, 1))
    value = call.value(call.args[0])
    return value.rot90(call.argument(1, "k", 1), many_dims(list(dims), value.dim() - 1))


@rule("hsplit", "vsplit", "dsplit")
def _split(call):
    value = call.value(call.args[0])
    rank = value.dim() - 1
    at = {"vsplit": 0, "dsplit": 2}.get(call.name, 0 if rank == 1 else 1)
    return value.tensor_split(call.args[1], at + 1) if rank > at else NotImplemented


_COPIES = (
    "alias diagonal expand permute select squeeze t transpose unfold unsqueeze view view_as_real view_as_complex narrow"
)


def _copy_rule(name):
    inner = RULES.get(name)

    def copy(call):
        view = getattr(Tensor, name, None) or getattr(_C, name)
        return Plain(view(*call.args, **call.kwargs).clone())

    if inner is not None:
        rule(f"{name}_copy")(copy)


for _name in _COPIES.split():
    _copy_rule(_name)


# ------------------------------------------------------------------------------------------------ shapes in place
@rule("unsqueeze_", "squeeze_", "t_", "transpose_", "swapaxes_", "swapdims_")
def _shape_in_place(call):
    """The batch changes its shape, and so does the example that stands for it."""
    check_first_is_batched(call)
    first = call.args[0]
    view = getattr(first, call.name.removesuffix("_"))(*call.rest(), **call.kwargs)
    first._batch_value = call.value(view)
    with _C.DisableTorchFunctionSubclass():
        first.data = view  # not in place, which would count as a change of the batch's base
    return Plain(first)


@rule("resize_", "resize_as_", "set_", "as_strided_")
def _no_shape_in_place(call):
    raise RuntimeError(
        f"vmap: {call.name} is not possible: it changes the memory of a tensor that stands for one example of a batch"
    )
