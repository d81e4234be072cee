"""Rules for pointwise operations, for those that leave leading dimensions alone, and for those along a dimension."""

from mica import _C
from mica.func import (  # noqa: F401 - they enter theirs
    _batch_rules_layers,
    _batch_rules_more,
    _batch_rules_products,
    _batch_rules_random,
    _batch_rules_views,
    _batched_autograd,
)
from mica.func._batch_dims import align, along, one_dim
from mica.func._batched import _BRANCH, Call, DataDependent, Plain, check_first_is_batched, rule

Tensor = _C.Tensor

POINTWISE = tuple(
    """
    abs absolute acos acosh add addcdiv addcmul angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin
    asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
    ceil celu clamp clamp_max clamp_min clip complex conj conj_physical copysign cos cosh deg2rad digamma div divide
    elu entr eq erf erfc erfcx erfinv exp exp2 expm1 fix float_power floor floor_divide fmax fmin fmod frac gcd ge
    gelu greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh heaviside hypot i0 i0e i1 i1e igamma
    igammac isclose isfinite isinf isnan isneginf isposinf isreal lcm ldexp le leaky_relu lerp less less_equal
    lgamma log log10 log1p log2 log_ndtr logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit
    logsigmoid lt maximum minimum mish mul multiply mvlgamma nan_to_num ndtr ndtri ne neg negative nextafter
    not_equal polar polygamma positive pow rad2deg reciprocal relu relu6 remainder round rsqrt rsub selu sgn
    sigmoid sign signbit silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh
    tanhshrink threshold true_divide trunc where xlog1py xlogy zeta resolve_conj resolve_neg gammaln gammainc
    gammaincc expit psi erfinv multigammaln __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__
    __rtruediv__ __div__ __rdiv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__ __rpow__ __and__ __rand__
    __or__ __ror__ __xor__ __rxor__ __lshift__ __rlshift__ __rshift__ __rrshift__ __eq__ __ne__ __lt__ __le__ __gt__
    __ge__ __neg__ __pos__ __abs__ __invert__ frexp bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0
    modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1
    airy_ai spherical_bessel_j0 chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v
    chebyshev_polynomial_w shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
    shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he
    laguerre_polynomial_l legendre_polynomial_p sigmoid_backward tanh_backward logit_backward threshold_backward
    hardtanh_backward leaky_relu_backward elu_backward gelu_backward silu_backward mish_backward log_sigmoid
    log_sigmoid_backward softplus_backward hardsigmoid_backward hardswish_backward hardshrink_backward
    """.split()  # noqa: SIM905
)


def _pointwise(call):
    names = [name for name, x in call.kwargs.items() if isinstance(x, Tensor)]
    places = [i for i, x in enumerate(call.args) if isinstance(x, Tensor)]
    tensors = [call.args[i] for i in places] + [call.kwargs[name] for name in names]
    values = [call.value(tensors[0])] if len(tensors) == 1 else align(call, tensors)
    args = list(call.args)
    for i, value in zip(places, values, strict=False):
        args[i] = value
    kwargs = call.kwargs
    if names:
        kwargs = {**kwargs, **dict(zip(names, values[len(places) :], strict=True))}
    return call.func(*args, **kwargs)


def _pointwise_in_place(call):
    check_first_is_batched(call)
    first = call.args[0]
    if any(isinstance(x, Tensor) and x.dim() > first.dim() for x in call.args[1:]):
        return NotImplemented  # one example by itself raises the error
    _pointwise(call)
    return Plain(first)


rule(*POINTWISE)(_pointwise)
rule(*(f"{name}_" for name in (*POINTWISE, "rrelu") if not name.startswith("_")))(_pointwise_in_place)
rule(
    *(f"__i{name}__" for name in ["add", "sub", "mul", "truediv", "div", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"]),
    "copy_", "fill_", "zero_", "fill",
)(_pointwise_in_place)  # fmt: skip
rule("fill")(_pointwise)


@rule("masked_fill")
def _masked_fill(call):
    if len(call.args) != 3:
        return NotImplemented
    x, mask, value = call.args
    if not isinstance(value, Tensor):
        return _pointwise(call)
    if value.dim():
        return NotImplemented  # one example by itself raises the error
    x, mask, value = align(call, [x, mask, value.to(x.dtype)])
    return _C.where(mask, value, x)


@rule("masked_fill_")
def _masked_fill_(call):
    check_first_is_batched(call)
    if len(call.args) != 3 or isinstance(call.args[2], Tensor):
        return NotImplemented
    return _pointwise_in_place(call)


# ------------------------------------------------------------------------------------------------ facts about an example
@rule("size")
def _size(call):
    shape = call.value(call.args[0]).shape[1:]
    dim = call.argument(1, "dim")
    return Plain(shape if dim is None else shape[one_dim(dim, len(shape)) - 1])


@rule("stride")
def _stride(call):
    strides = call.value(call.args[0]).stride()[1:]
    dim = call.argument(1, "dim")
    return Plain(strides if dim is None else strides[one_dim(dim, len(strides)) - 1])


@rule("is_contiguous")
def _is_contiguous(call):
    value = call.value(call.args[0])
    memory_format = call.argument(1, "memory_format", _C.contiguous_format)
    if memory_format not in (_C.contiguous_format, _C.preserve_format):
        raise RuntimeError(
            "NYI: querying is_contiguous inside of vmap for memory_format other than torch.contiguous_format"
        )
    return Plain(value.select(0, 0).is_contiguous(**call.kwargs) if value.size(0) else True)


@rule("is_same_size")
def _is_same_size(call):
    return Plain(call.args[0].shape == call.args[1].shape)


@rule("result_type", "can_cast", "is_tensor")
def _of_kinds(call):
    with _C.DisableTorchFunctionSubclass():  # the shells have the examples' shapes and dtypes
        return Plain(call.func(*call.args, **call.kwargs))


@rule("requires_grad_")
def _requires_grad_(call):
    call.value(call.args[0]).requires_grad_(*call.rest(), **call.kwargs)
    return Plain(call.args[0])


@rule("equal", "allclose", "__contains__")
def _compared(call):
    raise DataDependent(_BRANCH)


@rule("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive")
def _sizes_from_values(call):
    raise DataDependent(
        f"vmap: It looks like you're attempting to use {call.name}, an operation whose result has a shape that depends on "
        "values. We don't support vmap over dynamic shape operations, please try to rewrite what you're doing with other "
        "operations."
    )


@rule("__repr__", "__str__", "__format__")
def _repr(call):
    x = call.args[0]
    text = "\n".join("    " + line for line in repr(call.value(x)).splitlines())
    return Plain(f"BatchedTensor(lvl={call.level.depth}, bdim=0, value=\n{text}\n)")


# ------------------------------------------------------------------------------------------------ leading dimensions
_OF_MATRICES = frozenset(
    """
    tril triu tril_ triu_ det logdet slogdet inverse inv inv_ex cholesky cholesky_ex qr svd svdvals eigh eigvalsh eig eigvals
    pinv pinverse matrix_exp matrix_power cholesky_inverse lu_factor lu_factor_ex lu matrix_rank
    """.split()  # noqa: SIM905
)


@rule(
    "clone", "contiguous", "detach", "to", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte",
    "bool", "cpu", "cuda", "tril", "triu", "ones_like", "zeros_like", "empty_like", "full_like", "one_hot", "det",
    "logdet", "slogdet", "inverse", "inv", "inv_ex", "cholesky", "cholesky_ex", "qr", "svd", "svdvals", "eigh", "eigvalsh",
    "eig", "eigvals", "pinv", "pinverse", "matrix_exp", "matrix_power", "cholesky_inverse", "lu_factor", "lu_factor_ex",
    "lu", "matrix_rank", "view_as_real", "view_as_complex", "tril_", "triu_", "pixel_shuffle", "pixel_unshuffle",
)  # fmt: skip
def _leading(call):
    if any(call.is_batched(x) for x in call.rest()) or not call.is_batched(call.args[0]):
        return NotImplemented
    if call.name in _OF_MATRICES and call.args[0].dim() < 2:
        return NotImplemented  # a single example would be refused: with the batch it would pass for a matrix
    if call.name == "qr" and "r" in (*call.rest(), *call.kwargs.values()):
        return NotImplemented  # the empty Q of this mode has no batch
    if call.name.endswith("_"):
        check_first_is_batched(call)
        call.func(call.value(call.args[0]), *call.rest(), **call.kwargs)
        return Plain(call.args[0])
    return call.func(call.value(call.args[0]), *call.rest(), **call.kwargs)


@rule("type_as", "to")
def _to(call):
    first, args = call.args[0], [call.value(x) for x in call.args[1:]]
    value = call.value(first)
    if value is first:  # only the second argument, which gives the dtype, is an example
        return Plain(call.func(first, *args, **call.kwargs))
    return call.func(value, *args, **call.kwargs)


@rule("new_zeros", "new_ones", "new_empty", "new_full", "new")
def _new(call):
    value = call.value(call.args[0])
    args = list(call.rest())
    size = args.pop(0) if args and not isinstance(args[0], int) else None
    if size is None:
        if "size" in call.kwargs:
            size = call.kwargs["size"]
        else:
            size, args = args, []
    kwargs = {k: v for k, v in call.kwargs.items() if k != "size"}
    method = getattr(value, "new_empty" if call.name == "new" else call.name)
    return method((call.size, *size), *args, **kwargs)


@rule("new_tensor")
def _new_tensor(call):
    return Plain(call.func(call.value(call.args[0]), *call.rest(), **call.kwargs))


# ------------------------------------------------------------------------------------------------ along a dimension
def _single(call):
    return call.is_batched(call.args[0]) and not any(call.is_batched(x) for x in (*call.rest(), *call.kwargs.values()))


def _reduces(names, position, *, default=None, many=False, needed=False, values_only=False):
    """Operations along `dim`, at a position; without it over all dimensions of an example (or along `default`)."""

    def reduce(call):
        if not _single(call) or any(isinstance(x, Tensor) for x in call.kwargs.values()):
            return NotImplemented
        return along(call, position, default=default, many=many, needed=needed, values_only=values_only)

    rule(*names.split())(reduce)


_reduces("sum mean nansum nanmean amax amin logsumexp count_nonzero all any", 1, many=True)
_reduces("prod argmax argmin", 1)
_reduces("median nanmedian", 1, values_only=True)
_reduces("cumsum cumprod cummax cummin logcumsumexp softmax log_softmax softmin flip", 1, needed=True)
_reduces("sort argsort mode glu", 1, default=-1)
_reduces("topk kthvalue diff", 2, default=-1)
_reduces("quantile nanquantile", 2)
_reduces("norm vector_norm", 2, many=True)
_reduces("cumsum_ cumprod_", 1, needed=True)


@rule("max", "min")
def _max(call):
    other = call.argument(1, "other")
    if isinstance(other, Tensor):
        return _pointwise(call)
    if not _single(call):
        return NotImplemented
    return along(call, 1, values_only=True)


@rule("var", "std", "var_mean", "std_mean")
def _var(call):
    if not _single(call):
        return NotImplemented
    args = call.args
    if len(args) > 1 and isinstance(args[1], bool):  # unbiased comes first where no dim is given
        moved = Call(call.func, call.name, (args[0], None, *args[1:]), call.kwargs, call.level)
        return along(moved, 1, many=True)
    if call.argument(1, "dim") is None and "unbiased" in call.kwargs:
        kwargs = dict(call.kwargs)
        unbiased = kwargs.pop("unbiased")
        moved = Call(call.func, call.name, (args[0], None, unbiased), kwargs, call.level)
        return along(moved, 1, many=True)
    return along(call, 1, many=True)


@rule("trace")
def _trace(call):
    return call.value(call.args[0]).diagonal(dim1=-2, dim2=-1).sum(-1)


@rule("normalize")
def _normalize(call):
    if not _single(call):
        return NotImplemented
    value = call.value(call.args[0])
    dim = call.argument(2, "dim", 1)
    args = list(call.rest())
    kwargs = {k: v for k, v in call.kwargs.items() if k != "dim"}
    if len(args) > 1:
        args[1] = one_dim(dim, value.dim() - 1)
    else:
        kwargs["dim"] = one_dim(dim, value.dim() - 1)
    return call.func(value, *args, **kwargs)


@rule("cosine_similarity", "pairwise_distance")
def _of_pairs(call):
    if call.name == "pairwise_distance":
        return call.func(*align(call, call.args[:2]), *call.rest(2), **call.kwargs)
    values = align(call, call.args[:2])
    rank = max(x.dim() for x in call.args[:2])
    dim = one_dim(call.argument(2, "dim", 1), rank) - rank - 1
    kwargs = {k: v for k, v in call.kwargs.items() if k != "dim"}
    return call.func(*values, dim, *call.rest(3), **kwargs)


from mica.func import (  # noqa: E402, F401 - they stand on all rules above
    _batch_rules_composed,
    _batch_rules_indices,
    _batch_rules_losses,
    _batch_rules_shapes,
)
