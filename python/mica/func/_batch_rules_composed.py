"""Rules in terms of other operations, on the examples themselves: for operations that torch, too, makes of others.

They come last: where an operation has a rule that leaves a case to others, these are the others.
"""

import mica
from mica import _C
from mica.func import (  # noqa: F401 - they come before
    _batch_rules_layers,
    _batch_rules_more,
    _batch_rules_products,
    _batch_rules_random,
)
from mica.func._batch_dims import one_dim
from mica.func._batched import RULES, Plain

Tensor = _C.Tensor


def composed(*names, space=None):
    """Enter a function of the arguments of a call. It runs on examples, and its operations find their own rules."""

    def enter(function):
        for name in names:
            key = name if space is None else (space, name)
            _otherwise(key, RULES.get(key) or RULES.get(name), function)
        return function

    return enter


def _otherwise(key, before, function):
    def rule(call):
        result = NotImplemented if before is None else before(call)
        if result is NotImplemented:
            result = function(*call.args, **call.kwargs)
            return NotImplemented if result is NotImplemented else Plain(result)
        return result

    RULES[key] = rule


# ------------------------------------------------------------------------------------------------ sums and products
@composed("dist")
def _dist(input, other, p=2):
    return mica.linalg.vector_norm(input - other, p)


@composed("addbmm")
def _addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    product = mica.bmm(batch1, batch2).sum(0)
    product = product if alpha == 1 else alpha * product
    return product if beta == 0 else product + (input if beta == 1 else beta * input)


@composed("inner")
def _inner(input, other):
    if input.dim() == 0 or other.dim() == 0:
        return input * other
    count = input.shape[-1]
    product = input.reshape(-1, count) @ other.reshape(-1, count).transpose(0, 1)
    return product.reshape(input.shape[:-1] + other.shape[:-1])


@composed("cov")
def _cov(input, *, correction=1, fweights=None, aweights=None):
    if input.dim() > 2 or fweights is not None or aweights is not None:
        return NotImplemented
    x = input.reshape(1, -1) if input.dim() < 2 else input
    apart = x - x.mean(1, keepdim=True)
    found = apart @ apart.transpose(0, 1).conj() / max(x.shape[1] - correction, 0)
    return found.reshape(()) if x.shape[0] == 1 else found


@composed("corrcoef")
def _corrcoef(input):
    found = _cov(input)
    if found is NotImplemented or found.dim() == 0:
        return found if found is NotImplemented else found / found
    scale = found.diagonal()
    scale = scale.real.sqrt() if found.is_complex() else scale.sqrt()
    return found / scale.unsqueeze(1) / scale.unsqueeze(0)


@composed("prelu")
def _prelu(input, weight):
    channels = input.shape[min(1, input.dim() - 1)] if input.dim() else 1
    if weight.dim() > 1 or weight.numel() not in (1, channels) or (input.dim() == 0 and weight.numel() != 1):
        raise RuntimeError(
            f"prelu: Mismatch of parameter numbers and input channel size. Found parameter numbers = {weight.numel()}, and "
            f"channel size = {channels}."
        )
    if weight.numel() != 1 or weight.dim() > 0:
        shape = [1] * input.dim()
        if weight.numel() != 1:
            shape[min(1, input.dim() - 1)] = -1
        weight = weight.reshape(shape)
    return mica.where(input > 0, input, weight * input)


RULES.pop("diff", None)


@composed("diff")
def _diff(input, n=1, dim=-1, prepend=None, append=None):
    parts = [x for x in (prepend, input, append) if x is not None]
    if input.dim() == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if any(x.dim() != input.dim() for x in parts):
        raise RuntimeError("diff expects prepend or append to be the same dimension as input")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    one_dim(dim, input.dim())
    if n == 0:
        return input.clone()
    x = mica.cat(parts, dim) if len(parts) > 1 else input
    for _ in range(min(n, x.shape[dim])):
        last, first = x.narrow(dim, 1, x.shape[dim] - 1), x.narrow(dim, 0, x.shape[dim] - 1)
        x = last.logical_xor(first) if x.dtype is mica.bool else last - first
    return x


@composed("cumulative_trapezoid")
def _cumulative_trapezoid(y, x=None, *, dx=None, dim=-1):
    if y.dim() == 0 or (x is not None and x.dim() not in (1, y.dim())):
        return NotImplemented
    return _areas(y, x, dx, dim).cumsum(dim)


@composed("trapezoid", "trapz")
def _trapezoid(y, x=None, *, dx=None, dim=-1):
    if y.dim() == 0 or (x is not None and x.dim() not in (1, y.dim())):
        return NotImplemented
    return _areas(y, x, dx, dim).sum(dim)


def _areas(y, x, dx, dim):
    """The areas under the lines between neighbouring points."""
    count = y.shape[dim]
    if count == 0:
        return y.narrow(dim, 0, 0)
    pairs = y.narrow(dim, 1, count - 1) + y.narrow(dim, 0, count - 1)
    if x is None:
        return pairs * ((1 if dx is None else dx) / 2.0)
    if x.dim() == 1 and y.dim() > 1:
        shape = [1] * y.dim()
        shape[dim] = -1
        x = x.reshape(shape)
        dim = dim % y.dim()
    return (x.narrow(dim, 1, x.shape[dim] - 1) - x.narrow(dim, 0, x.shape[dim] - 1)) * pairs / 2.0


# ------------------------------------------------------------------------------------------------ refusals
def _refusing(name, is_wrong, words):
    """A rule that looks at the example first: its batch has a dimension more, which the operation itself would take."""
    before = RULES[name]

    def rule(call):
        tensors = [x for x in call.args[:2] if isinstance(x, Tensor)]
        if tensors and is_wrong(*tensors):
            raise RuntimeError(words(*tensors))
        return before(call)

    RULES[name] = rule


_refusing("t", lambda x: x.dim() > 2, lambda x: f"t() expects a tensor with <= 2 dimensions, but self is {x.dim()}D")
_refusing("trace", lambda x: x.dim() != 2, lambda x: f"trace: expected a matrix, but got tensor with dim {x.dim()}")
_refusing("diag", lambda x: x.dim() > 2, lambda x: f"diag(): Supports 1D or 2D tensors. Got {x.dim()}D")
for _name in ("dot", "vdot"):
    _refusing(
        _name,
        lambda a, b: a.dim() != 1 or b.dim() != 1 or a.dtype != b.dtype or a.shape != b.shape,
        lambda a, b: (
            f"1D tensors expected, but got {a.dim()}D and {b.dim()}D tensors"
            if a.dim() != 1 or b.dim() != 1
            else f"dot : expected both vectors to have same dtype, but found {a.dtype} and {b.dtype}"
            if a.dtype != b.dtype
            else f"inconsistent tensor size, expected tensor {list(a.shape)} and src {list(b.shape)} to have the same "
            "number of elements"
        ),
    )


# ------------------------------------------------------------------------------------------------ norms
@composed("matrix_norm")
def _matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    places = [d % A.dim() for d in dim]
    found = mica.linalg.matrix_norm(A.movedim(places, (-2, -1)), ord, dtype=dtype)
    for d in sorted(places) if keepdim else ():
        found = found.unsqueeze(d)
    return found


def _linalg_norm(call):
    """linalg.norm is the norm of a vector or of a matrix, by what it is given."""
    names = ("A", "ord", "dim", "keepdim", "dtype")
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    x, order, dims = given.pop("A", None), given.pop("ord", None), given.pop("dim", None)
    if x is None or not all(name in ("keepdim", "dtype") for name in given):
        return NotImplemented
    if dims is None and order is not None and x.dim() not in (1, 2):
        raise RuntimeError("linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D.")
    of_matrix = (dims is None and order is not None and x.dim() == 2) or (
        dims is not None and not isinstance(dims, int) and len(dims) == 2 and order is not None
    )
    if of_matrix:
        return Plain(mica.linalg.matrix_norm(x, order, (-2, -1) if dims is None else tuple(dims), **given))
    return Plain(mica.linalg.vector_norm(x, 2 if order is None else order, dims, **given))


RULES["linalg", "norm"] = _linalg_norm


def _of_a_number(name):
    """An operation along a dimension, of examples without any: they are given one."""
    before = RULES[name]

    def rule(call):
        tensors = [x for x in call.args if isinstance(x, Tensor)]
        if all(x.dim() for x in tensors):
            return before(call)
        args = [x.unsqueeze(0) if isinstance(x, Tensor) and x.dim() == 0 else x for x in call.args]
        kwargs = {**call.kwargs, **({"dim": 0} if len(args) < 3 and "dim" not in call.kwargs else {})}
        result = getattr(mica.nn.functional, call.name)(*args, **kwargs)
        keeps = call.name == "normalize"
        return Plain(result.squeeze(0) if keeps else result)

    RULES[name] = rule


_of_a_number("normalize")
_of_a_number("cosine_similarity")


# ------------------------------------------------------------------------------------------------ matrices
def _of_one_rank(a, b):
    while a.dim() < b.dim():
        a = a.unsqueeze(0)
    while b.dim() < a.dim():
        b = b.unsqueeze(0)
    return a, b


@composed("solve", space="linalg")
@composed("solve")
def _solve(A, B, *, left=True):
    if A.dim() < 2:
        raise RuntimeError("linalg.solve: The input tensor A must have at least 2 dimensions.")
    by_vector = B.dim() == 1 or (B.dim() == A.dim() - 1 and B.shape == A.shape[:-1])
    if not by_vector and A.dim() == B.dim():
        return NotImplemented
    options = {} if left else {"left": False}
    if by_vector:
        return mica.linalg.solve(A, B.unsqueeze(-1), **options).squeeze(-1) if left else NotImplemented
    return mica.linalg.solve(*_of_one_rank(A, B), **options)


@composed("solve_ex", space="linalg")
@composed("solve_ex")
def _solve_ex(A, B, *, left=True, check_errors=False):
    if A.dim() < 2:
        raise RuntimeError("linalg.solve: The input tensor A must have at least 2 dimensions.")
    if not (left and (B.dim() == 1 or (B.dim() == A.dim() - 1 and B.shape == A.shape[:-1]))):
        return NotImplemented
    found = mica.linalg.solve_ex(A, B.unsqueeze(-1), check_errors=check_errors)
    return type(found)((found[0].squeeze(-1), found[1]))


@composed("tensorinv", space="linalg")
@composed("tensorinv")
def _tensorinv(A, ind=2):
    left, right = A.shape[:ind], A.shape[ind:]
    return mica.linalg.inv(A.reshape(left.numel(), right.numel())).reshape(*right, *left)


@composed("cdist")
def _cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    if x1.dim() == x2.dim():
        return NotImplemented
    return mica.cdist(*_of_one_rank(x1, x2), p, compute_mode)
