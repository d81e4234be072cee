"""What torch's functions do with masked tensors."""

import warnings

import mica
from mica import _C
from mica.masked import _ops
from mica.masked.maskedtensor import _sparse
from mica.masked.maskedtensor.core import MaskedTensor, _with_mask, answer_with

_UNARY = frozenset(
    """
    abs absolute acos arccos acosh arccosh angle asin arcsin asinh arcsinh atan arctan atanh arctanh bitwise_not
    ceil clamp clip conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac lgamma log
    log10 log1p log2 logit i0 isnan nan_to_num neg negative positive pow rad2deg reciprocal round rsqrt sigmoid sign
    sgn signbit sin sinc sinh sqrt square tan tanh trunc relu gelu silu elu leaky_relu softplus __neg__ __abs__
    __pos__ __invert__ __pow__
    """.split()  # noqa: SIM905
)
_BINARY = frozenset(
    """
    add atan2 arctan2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift div divide
    floor_divide fmod logaddexp logaddexp2 mul multiply nextafter remainder sub subtract true_divide eq ne le ge
    greater greater_equal gt less_equal lt less maximum minimum fmax fmin not_equal __add__ __radd__ __sub__
    __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __and__ __or__
    __xor__ __lt__ __le__ __gt__ __ge__ __eq__ __ne__ __rpow__
    """.split()  # noqa: SIM905
)
_IN_PLACE = frozenset(
    [name + "_" for name in _UNARY | _BINARY if not name.startswith("_")]
    + [
        "__iadd__",
        "__isub__",
        "__imul__",
        "__itruediv__",
        "__ifloordiv__",
        "__imod__",
        "__ipow__",
        "copy_",
        "zero_",
        "fill_",
    ]
)
_THROUGH = frozenset(
    """
    select transpose swapaxes split chunk t expand expand_as broadcast_to view view_as reshape reshape_as cat concat
    stack unsqueeze squeeze unfold flatten ravel unflatten permute movedim narrow unbind index_select gather flip
    roll repeat tile diagonal __getitem__ clone contiguous detach alias
    """.split()  # noqa: SIM905
)
_KINDS = frozenset(
    """
    to float double half int long short char bool cpu cuda type type_as
    """.split()  # noqa: SIM905
)
_REDUCE = frozenset(
    """
    sum mean amin amax argmin argmax prod all norm var std logsumexp median cumsum cumprod
    """.split()  # noqa: SIM905
)
_OF_THE_DATA = frozenset(
    """
    size stride dim ndimension numel backward register_hook retain_grad is_contiguous is_same_size is_floating_point
    is_complex __format__ __len__ get_device element_size
    """.split()  # noqa: SIM905
)
_OF_THE_OBJECT = _OF_THE_DATA | {"requires_grad_", "__repr__", "__str__"}
_SHAPE_KEPT = frozenset(("cumsum", "cumprod"))
_NORMALIZE = frozenset(("softmax", "log_softmax", "softmin"))


def _data(x):
    if isinstance(x, MaskedTensor):
        return x.get_data()
    return type(x)(_data(y) for y in x) if type(x) in (list, tuple) else x


def _mask(x):
    if isinstance(x, MaskedTensor):
        return x.get_mask()
    return type(x)(_mask(y) for y in x) if type(x) in (list, tuple) else x


def _wrapped(data, mask):
    if isinstance(data, (list, tuple)):
        return type(data)(_wrapped(d, m) for d, m in zip(data, mask, strict=True))
    return _with_mask(data, mask) if isinstance(data, mica.Tensor) else data


def _common_mask(args):
    masks = [x.get_mask() for x in args if isinstance(x, MaskedTensor)]
    for other in masks[1:]:
        if masks[0].dim() != other.dim() or not bool((masks[0] == other).all()):
            raise ValueError("Input masks must match. If you need support for this, please open an issue on Github.")
    return masks[0]


def _through(func, args, kwargs):
    """Apply a function of shapes to the data and to the mask."""
    data = func(*_data(args), **{k: _data(v) for k, v in kwargs.items()})
    mask = func(*_mask(args), **{k: _mask(v) for k, v in kwargs.items()})
    return _wrapped(data, mask)


def _reduced(name, args, kwargs):
    x = args[0]
    data, mask = x.get_data(), x.get_mask()
    if name == "all":
        marked = data.bool() | ~mask
        if len(args) == 1 and not kwargs:
            return _with_mask(marked.all(), mask.any())
        dim, keepdim = (*args[1:], kwargs.get("dim"))[0], (*args[2:], kwargs.get("keepdim", False))[0]
        return _with_mask(marked.all(dim, keepdim), mask.any(dim, keepdim))
    function = getattr(_ops, name)
    kwargs = dict(kwargs)
    rest = list(args[1:])
    if name == "norm":
        kwargs.setdefault("ord", rest.pop(0) if rest else kwargs.pop("p", 2.0))
    if rest:
        kwargs["dim"] = rest.pop(0)
    if rest and name in ("var", "std"):
        kwargs["unbiased"] = rest.pop(0)
    if rest:
        kwargs["keepdim"] = rest.pop(0)
    if name in ("argmax", "argmin"):
        kwargs.setdefault("dtype", mica.int64)
    result = function(data, mask=mask, **kwargs)
    if name in _SHAPE_KEPT:
        return _with_mask(result, mask)
    left = mask
    for d in reversed(_ops._canonical_dim(kwargs.get("dim", -1 if name == "median" else None), mask.dim())):
        left = left.any(d, keepdim=kwargs.get("keepdim", False))
    return _with_mask(result, left)


def _where(condition, x, other):
    data = mica.where(condition, _data(x), _data(other))
    masks = [m if isinstance(m, mica.Tensor) else mica.tensor(True) for m in (
        x.get_mask() if isinstance(x, MaskedTensor) else None,
        other.get_mask() if isinstance(other, MaskedTensor) else None,
    )]  # fmt: skip
    return _with_mask(data, mica.where(condition, *masks).expand_as(data))


def _attribute(func, x):
    name = func.__self__.__name__
    if name in ("T", "mT", "H", "mH", "data"):
        return _wrapped(func(x.get_data()), func(x.get_mask()))
    return func(x.get_data())


def _any_sparse(values):
    return any(
        _any_sparse(v) if type(v) in (list, tuple) else isinstance(v, MaskedTensor) and v.is_sparse for v in values
    )


def _kind_of(name):
    """What a function does with a sparse masked tensor (_sparse.call)."""
    if name in _BINARY or name in _UNARY or name in _KINDS or name in ("ones_like", "zeros_like", "clone", "detach"):
        return "pointwise"
    if name in _IN_PLACE:
        return "in place"
    return "shape" if name in _THROUGH or name in _NORMALIZE or name in _SHAPE_KEPT or name == "where" else "other"


def call(func, args, kwargs):
    name = getattr(func, "__name__", "")
    if name == "__get__":
        if func.__self__.__name__ in ("requires_grad", "is_leaf", "grad_fn", "grad"):
            with _C.DisableTorchFunctionSubclass():
                return func(args[0])
        return _attribute(func, args[0])
    if name == "__set__":
        with _C.DisableTorchFunctionSubclass():
            return func(*args)
    if name in ("is_contiguous", "contiguous") and args[0].get_mask().layout != mica.strided:
        raise ValueError("MaskedTensors with sparse data do not have is_contiguous")
    if name not in _OF_THE_OBJECT and _any_sparse(args):
        return _sparse.call(name, _kind_of(name), func, args, kwargs, call)
    if name in _BINARY or (name in ("pow", "__pow__") and isinstance(args[1], MaskedTensor)):
        if any(isinstance(a, mica.Tensor) for a in args[2:]):
            raise TypeError("MaskedTensor binary ops do not support Tensor arguments aside from the lhs and rhs")
        mask = _common_mask(args)
        data = func(*_data(args), **kwargs)
        return _with_mask(data, mask.expand_as(data))
    if name in _UNARY or name in _KINDS:
        if name in _UNARY and any(isinstance(a, mica.Tensor) for a in args[1:]):
            raise TypeError("MaskedTensor unary ops do not support additional Tensor arguments")
        return _with_mask(func(*_data(args), **kwargs), _common_mask(args[:1]))
    if name in _IN_PLACE:
        _common_mask(args)
        func(*_data(args), **kwargs)
        return args[0]
    if name in _THROUGH:
        return _through(func, args, kwargs)
    if name in _REDUCE:
        return _reduced(name, args, kwargs)
    if name in _NORMALIZE:
        dim = args[1] if len(args) > 1 else kwargs["dim"]
        return _with_mask(getattr(_ops, name)(args[0].get_data(), dim, mask=args[0].get_mask()), args[0].get_mask())
    if name == "where":
        return _where(*args)
    if name in ("ones_like", "zeros_like", "empty_like", "full_like", "rand_like", "randn_like"):
        return _with_mask(func(*_data(args), **kwargs), args[0].get_mask())
    if name == "requires_grad_":
        with _C.DisableTorchFunctionSubclass():
            func(*args, **kwargs)
        return args[0]
    if name in _OF_THE_DATA:
        return func(*_data(args), **kwargs)
    if name in ("__repr__", "__str__"):
        return repr(args[0])
    warnings.warn(
        f"{name} is not implemented in __torch_dispatch__ for MaskedTensor.\nIf you would like this operator to be "
        "supported, please file an issue for a feature request at https://github.com/pytorch/maskedtensor/issues with a "
        "minimal reproducible code snippet.\nIn the case that the semantics for the operator are not trivial, it would be "
        "appreciated to also include a proposal for the semantics.",
        stacklevel=3,
    )
    return NotImplemented


answer_with(call)
