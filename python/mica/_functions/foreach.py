"""One operation on every tensor of a list: torch._foreach_add and its like."""

from mica import _C

_UNARY = [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "frac",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]
_BINARY = ["add", "sub", "mul", "div", "pow", "clamp_max", "clamp_min", "maximum", "minimum"]
_BOUNDS = {"clamp_max": "minimum", "clamp_min": "maximum"}


def _check(tensors, name):
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(
            f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not {type(tensors).__name__}"
        )
    if not tensors:
        raise RuntimeError("Tensor list must have at least one tensor.")


def _spread(tensors, other):
    """The argument for each tensor: an item of a list, or the same value for all."""
    if not isinstance(other, (list, tuple)):
        return [other] * len(tensors)
    if len(other) != len(tensors):
        kind = "tensors" if other and isinstance(other[0], _C.Tensor) else "scalars"
        raise RuntimeError(
            f"Tensor lists must have the same number of tensors, got {len(tensors)} and {len(other)}"
            if kind == "tensors"
            else f"Tensor list must have same number of elements as scalar list. Got {len(tensors)} and {len(other)}."
        )
    return other


def _factors(tensors, scalars):
    """A factor for each tensor: the same for all, or of a list, or of a tensor of one dimension."""
    if not isinstance(scalars, _C.Tensor):
        return _spread(tensors, scalars)
    if scalars.dim() != 1:
        raise RuntimeError(f"Expected packed scalar Tensor to be of dimension 1. Got {scalars.dim()} instead.")
    if not scalars.is_contiguous():
        raise RuntimeError("Expected scalars to be contiguous.")
    if len(scalars) != len(tensors):
        raise RuntimeError(
            f"Expected length of scalars to match input of length {len(tensors)} but got {len(scalars)} instead."
        )
    return scalars.tolist()


def _unary(op):
    name = f"_foreach_{op}"
    function, method = getattr(_C, op), f"{op}_"

    def foreach(self):
        _check(self, name)
        return tuple(map(function, self))

    def foreach_(self):
        _check(self, name)
        for tensor in self:
            getattr(tensor, method)()
        return self

    return foreach, foreach_


def _by_name(name, names, given, named):
    """The two arguments of a call. torch's overloads have several names for the second one."""
    given = list(given)
    for allowed in (("self",), names)[len(given) :]:
        found = next((each for each in allowed if each in named), None)
        if found is None:
            raise TypeError(f"{name}() missing 1 required positional argument: '{allowed[0]}'")
        given.append(named.pop(found))
    if named or len(given) > 2:
        unknown = (
            f"got an unexpected keyword argument '{next(iter(named))}'" if named else "takes 2 positional arguments"
        )
        raise TypeError(f"{name}() {unknown}")
    return given


def _binary(op):
    name = f"_foreach_{op}"
    names = ("exponent",) if op == "pow" else ("other", "scalar", "scalars")
    options = ("alpha",) if op in ("add", "sub") else ()

    def call(function, tensors, other, alpha):
        _check(tensors, name)
        extra = {"alpha": alpha} if options and alpha != 1 else {}
        return [function(a, b, **extra) for a, b in zip(tensors, _spread(tensors, other), strict=True)]

    def value(a, b, **extra):
        if op in ("maximum", "minimum", "clamp_max", "clamp_min"):
            if isinstance(b, _C.Tensor):
                return getattr(_C, _BOUNDS.get(op, op))(a, b)
            return a.clamp(**{"max" if op in ("minimum", "clamp_max") else "min": b})
        return getattr(_C, op)(a, b, **extra)

    def change(a, b, **extra):
        if op in ("maximum", "minimum", "clamp_max", "clamp_min"):
            if isinstance(b, _C.Tensor):
                getattr(_C, _BOUNDS.get(op, op))(a, b, out=a)
            else:
                a.clamp_(**{"max" if op in ("minimum", "clamp_max") else "min": b})
        else:
            getattr(a, f"{op}_")(b, **extra)

    def foreach(*given, alpha=1, **named):
        self, other = _by_name(name, names, given, named) if named or len(given) != 2 else given
        if op == "pow" and not isinstance(self, (list, tuple)):
            _check(other, name)
            return tuple(_C.pow(self, each) for each in other)
        return tuple(call(value, self, other, alpha))

    def foreach_(*given, alpha=1, **named):
        self, other = _by_name(f"{name}_", names, given, named) if named or len(given) != 2 else given
        call(change, self, other, alpha)
        return self

    return foreach, foreach_


def _three(op):
    name = f"_foreach_{op}"

    def rows(self, tensor1, tensor2, value, scalars):
        _check(self, name)
        factors = _spread(self, value) if scalars is None else _factors(self, scalars)
        return zip(self, _spread(self, tensor1), _spread(self, tensor2), factors, strict=True)

    def foreach(self, tensor1, tensor2, scalars=None, *, value=1):
        return tuple(getattr(_C, op)(a, b, c, value=v) for a, b, c, v in rows(self, tensor1, tensor2, value, scalars))

    def foreach_(self, tensor1, tensor2, scalars=None, *, value=1):
        for a, b, c, v in rows(self, tensor1, tensor2, value, scalars):
            getattr(a, f"{op}_")(b, c, value=v)
        return self

    return foreach, foreach_


def _weight(name, weight, named):
    """The weight of a call, which is named `weights` where it is a list of tensors."""
    return _by_name(name, ("weight", "weights"), (None, *([] if weight is None else [weight])), named)[1]


def _foreach_lerp(self, tensors1, weight=None, **named):
    _check(self, "_foreach_lerp")
    weight = _weight("_foreach_lerp", weight, named)
    return tuple(_C.lerp(a, b, w) for a, b, w in zip(self, _spread(self, tensors1), _spread(self, weight), strict=True))


def _foreach_lerp_(self, tensors1, weight=None, **named):
    _check(self, "_foreach_lerp_")
    weight = _weight("_foreach_lerp_", weight, named)
    for a, b, w in zip(self, _spread(self, tensors1), _spread(self, weight), strict=True):
        a.lerp_(b, w)
    return self


def _foreach_norm(self, ord=2, dtype=None):
    _check(self, "_foreach_norm")
    from mica.linalg import vector_norm

    if ord == float("inf") and any(tensor.numel() == 0 for tensor in self):
        raise RuntimeError(
            "_foreach_norm cannot compute the infinity norm on an empty tensor because the operation does not have an identity"
        )
    return tuple(vector_norm(tensor, ord, dtype=dtype) for tensor in self)


def _foreach_max(self):
    _check(self, "_foreach_max")
    return tuple(map(_C.max, self))


def _foreach_mm(self, mat2):
    _check(self, "_foreach_mm")
    return tuple(map(_C.mm, self, _spread(self, mat2)))


def _foreach_zero_(self):
    _check(self, "_foreach_zero_")
    for tensor in self:
        tensor.zero_()
    return self


def _foreach_copy_(self, src, non_blocking=False):
    _check(self, "_foreach_copy_")
    for target, source in zip(self, _spread(self, src), strict=True):
        target.copy_(source, non_blocking)
    return self


def _foreach_clone(self, *, memory_format=None):
    _check(self, "_foreach_clone")
    return tuple(
        tensor.clone() if memory_format is None else tensor.clone(memory_format=memory_format) for tensor in self
    )


for _op in _UNARY:
    globals()[f"_foreach_{_op}"], globals()[f"_foreach_{_op}_"] = _unary(_op)
for _op in _BINARY:
    globals()[f"_foreach_{_op}"], globals()[f"_foreach_{_op}_"] = _binary(_op)
for _op in ("addcmul", "addcdiv"):
    globals()[f"_foreach_{_op}"], globals()[f"_foreach_{_op}_"] = _three(_op)
for _name, _function in list(globals().items()):
    if _name.startswith("_foreach_"):
        _function.__name__ = _function.__qualname__ = _name
