"""Rules for products of matrices."""

import mica
from mica import _C
from mica.autograd import Function
from mica.func._batch_dims import align, one_dim, padded
from mica.func._batched import rule

Tensor = _C.Tensor


class _SharedProduct(Function):
    """x @ w where all examples share one w: one product, with a gradient for each example's own w.

    `w` is a batch of equal matrices that takes the memory of one. Under autocast the product has another dtype than its
    factors, and gradients are computed in the product's: `dtype` says so to the product that is the gradient of x.
    """

    @staticmethod
    def forward(ctx, x, w, turned, dtype=None):
        ctx.save_for_backward(x, w)
        ctx.turned = turned
        shared = w[0].mT if turned else w[0]
        return x @ shared if dtype is None else x.to(dtype) @ shared.to(dtype)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        for_x = for_w = None
        if ctx.needs_input_grad[0]:
            for_x = _SharedProduct.apply(grad, w, not ctx.turned, grad.dtype).to(x.dtype)
        if ctx.needs_input_grad[1]:
            rows, grads = (t.reshape(t.shape[0], -1, t.shape[-1]) for t in (x.to(grad.dtype), grad))
            left, right = (grads, rows) if ctx.turned else (rows, grads)
            for_w = (left.mT * right if rows.shape[1] == 1 else left.mT @ right).to(w.dtype)
        return for_x, for_w, None, None


def is_shared(value):
    """Whether a batch is one example, repeated."""
    return type(value) is Tensor and value.dim() > 1 and value.shape[0] > 1 and value.stride(0) == 0


def matmul(call, a, b, turned=False):
    """a @ b, or a @ b.mT, of examples or other tensors."""
    in_a, in_b = call.is_batched(a), call.is_batched(b)
    x, y = call.value(a), call.value(b)
    if in_b and is_shared(y) and b.dim() == 2:
        if not y.requires_grad:
            in_b, y = False, y[0]
        elif in_a and type(x) is Tensor:
            return _SharedProduct.apply(x, y, turned)
    if in_a and is_shared(x) and not x.requires_grad:
        in_a, x = False, x[0]
    if not in_a and not in_b:
        return call.full(x @ (y.mT if turned else y))
    if turned:
        y = y.mT
    rank_a, rank_b = x.dim() - in_a, y.dim() - in_b
    if rank_a == 0 or rank_b == 0:
        return mica.matmul(x.select(0, 0) if in_a else x, y.select(0, 0) if in_b else y)  # raises the error
    left, right = rank_a == 1, rank_b == 1
    if in_a and not in_b and rank_b <= 2 and (rank_a > 1 or rank_b >= 1):
        return x @ y
    if in_b and not in_a and left and right:
        return y @ x
    if left:
        x = x.unsqueeze(-2)
    if right:
        y = y.unsqueeze(-1)
    rank = max(x.dim() - in_a, y.dim() - in_b)
    if in_a and x.dim() - 1 < rank:
        x = x.reshape(x.shape[:1] + (1,) * (rank - x.dim() + 1) + x.shape[1:])
    if in_b and y.dim() - 1 < rank:
        y = y.reshape(y.shape[:1] + (1,) * (rank - y.dim() + 1) + y.shape[1:])
    product = x @ y
    if right:
        product = product.squeeze(-1)
    return product.squeeze(-1 if right else -2) if left else product


@rule("matmul", "mm", "bmm", "mv", "dot", "__matmul__", "linalg_matmul")
def _matmul(call):
    a, b = call.argument(0, "input"), _second(call)
    _check_ranks(call.name, a, b)
    return matmul(call, a, b)


_RANKS = {"mm": (2, 2), "addmm": (2, 2), "bmm": (3, 3), "baddbmm": (3, 3), "mv": (2, 1), "addmv": (2, 1), "dot": (1, 1)}


def _check_ranks(name, a, b):
    """Refuse examples of other ranks than the function takes, which matmul would multiply."""
    ranks = _RANKS.get(name)
    if ranks and ranks != (a.dim(), b.dim()):
        raise RuntimeError(
            f"Shape mismatch: Got incorrect dims for {name}(a, b). a has dim {a.dim()} and b has dim {b.dim()} but "
            f"expected them to have dim {ranks[0]} and dim {ranks[1]}"
        )


def _second(call):
    for name in ("other", "mat2", "vec", "tensor"):
        if name in call.kwargs:
            return call.kwargs[name]
    return call.args[1]


@rule("__rmatmul__")
def _rmatmul(call):
    return matmul(call, call.args[1], call.args[0])


@rule("linear")
def _linear(call):
    x, w, b = (call.argument(i, name) for i, name in enumerate(("input", "weight", "bias")))
    if not call.is_batched(w) and not call.is_batched(b):
        return call.func(call.value(x), w, b)
    if w.dim() != 2:
        return NotImplemented
    product = matmul(call, x, w, turned=True)
    if b is None:
        return product
    if not (call.is_batched(x) or call.is_batched(w)):
        product = product.expand(call.size, *product.shape[1:]) if product.shape[0] == 1 else product
    return product + padded(call, b, product.dim() - 1)


def _weighted(call, product, beta, alpha):
    base = call.args[0] if call.args else call.kwargs["input"]
    rank = product.dim() - 1
    added = padded(call, base, rank)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (added if beta == 1 else added * beta)


@rule("addmm", "addmv", "baddbmm")
def _addmm(call):
    if len(call.args) < 3:
        return NotImplemented
    _check_ranks(call.name, call.args[1], call.args[2])
    product = matmul(call, call.args[1], call.args[2])
    return _weighted(call, product, call.kwargs.get("beta", 1), call.kwargs.get("alpha", 1))


@rule("outer", "ger")
def _outer(call):
    a, b = call.args[0], _other(call)
    return call.value(a).unsqueeze(-1) * call.value(b).unsqueeze(-2)


def _other(call):
    return call.args[1] if len(call.args) > 1 else next(iter(call.kwargs.values()))


@rule("vdot", "inner", "vecdot", "linalg_vecdot")
def _vdot(call):
    a, b = call.args[0], _other(call)
    if call.name in ("vdot",):
        return (call.value(a).conj() * call.value(b)).sum(-1)
    if call.name == "inner":
        return (call.value(a) * call.value(b)).sum(-1) if a.dim() == b.dim() == 1 else NotImplemented
    rank = max(a.dim(), b.dim())
    x, y = align(call, [a, b])
    return (x.conj() * y).sum(one_dim(call.kwargs.get("dim", -1), rank) - rank - 1)


@rule("cross", "linalg_cross")
def _cross(call):
    a, b = call.args[0], _other(call)
    dim = call.kwargs.get("dim", call.args[2] if len(call.args) > 2 else -1)
    if dim is None or a.dim() != b.dim():
        return NotImplemented
    return mica.linalg.cross(call.full(a), call.full(b), dim=one_dim(dim, a.dim()))


@rule("einsum")
def _einsum(call):
    equation = call.args[0]
    operands = call.args[1:]
    if not isinstance(equation, str):
        return NotImplemented
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    equation = equation.replace(" ", "")
    given, arrow, out = equation.partition("->")
    inputs = given.split(",")
    if len(inputs) != len(operands):
        return NotImplemented
    letter = next(c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in equation)
    if not arrow:
        letters = given.replace(",", "").replace(".", "")
        out = ("..." if "..." in given else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    inputs = [letter + part if call.is_batched(x) else part for part, x in zip(inputs, operands, strict=True)]
    return mica.einsum(f"{','.join(inputs)}->{letter}{out}", *[call.value(x) for x in operands])


@rule("tensordot")
def _tensordot(call):
    a, b = call.args[:2]
    dims = call.argument(2, "dims", 2)
    if isinstance(dims, int):
        dims = (list(range(a.dim() - dims, a.dim())), list(range(dims)))
    if isinstance(dims, Tensor):
        return NotImplemented
    over_a, over_b = ([d % x.dim() for d in part] for part, x in zip(dims, (a, b), strict=True))
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXY")
    names_a = [next(letters) for _ in range(a.dim())]
    names_b = [next(letters) for _ in range(b.dim())]
    for i, j in zip(over_a, over_b, strict=True):
        names_b[j] = names_a[i]
    summed = {names_a[i] for i in over_a}
    out = [c for c in (*names_a, *names_b) if c not in summed]
    left = ("Z" if call.is_batched(a) else "") + "".join(names_a)
    right = ("Z" if call.is_batched(b) else "") + "".join(names_b)
    return mica.einsum(f"{left},{right}->Z{''.join(out)}", call.value(a), call.value(b))


@rule("solve", "linalg_solve", "solve_triangular", "linalg_solve_triangular", "cholesky_solve", "triangular_solve",
      "lu_solve")  # fmt: skip
def _solve(call):
    if len(call.args) != 2 or any(x.dim() < 2 for x in call.args) or call.args[0].dim() != call.args[1].dim():
        return NotImplemented
    return call.func(call.full(call.args[0]), call.full(call.args[1]), **call.kwargs)


@rule("scaled_dot_product_attention")
def _attention(call):
    q, k, v = (call.argument(i, name) for i, name in enumerate(("query", "key", "value")))
    rank = max(x.dim() for x in (q, k, v))
    if call.argument(4, "dropout_p", 0.0) or len(call.args) > 4 or any(x.dim() != rank for x in (q, k, v)):
        return NotImplemented
    kwargs = {name: x for name, x in call.kwargs.items() if name not in ("query", "key", "value")}
    mask = call.argument(3, "attn_mask")
    if isinstance(mask, Tensor):
        kwargs["attn_mask"] = padded(call, mask, rank)
    return call.func(*(call.full(x) for x in (q, k, v)), **kwargs)
