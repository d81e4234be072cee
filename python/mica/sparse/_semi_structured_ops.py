"""The operations of semi-structured sparse matrices, as they come to __torch_dispatch__."""

import mica

__all__ = ["operations"]


def _is_sparse(x):
    return hasattr(type(x), "SPARSE_DISPATCH")  # the module of the class imports this file


def _values(func, types, args, kwargs):
    if args[0].packed is None:
        raise AssertionError("packed tensor must not be None")
    return args[0].packed.detach()


def _indices(func, types, args, kwargs):
    if args[0].packed is None:
        raise AssertionError("packed tensor must not be None")
    return args[0].meta


def _detach(func, types, args, kwargs):
    return args[0]._like()


def _clone(func, types, args, kwargs):
    this, (parts, _) = args[0], args[0].__tensor_flatten__()
    return this._like(**{name: getattr(this, name).clone() for name in parts})


def _t(func, types, args, kwargs):
    this = args[0]
    mask = this.compressed_swizzled_bitmask
    return this._like(
        mica.Size(reversed(this.shape)),
        packed=this.packed_t,
        meta=this.meta_t,
        packed_t=this.packed,
        meta_t=this.meta,
        compressed_swizzled_bitmask=None if mask is None else mask.transpose(0, 1),
    )


def _view(func, types, args, kwargs):
    this, shape = args
    if tuple(shape) != tuple(this.shape):
        raise NotImplementedError(
            f"`view` is not implemented for SparseSemiStructuredTensor, except for the dummy case (shape={list(shape)})"
        )
    return this._like()


def _mm(func, types, args, kwargs):
    a, b = args
    if a.ndim != 2 or b.ndim != 2:
        raise NotImplementedError("`SparseSemiStructuredTensor` matmul: Broadcasting is not implemented")
    return a._mm(b) if _is_sparse(a) else b.t()._mm(a.t()).t()


def _addmm(func, types, args, kwargs):
    bias, a, b = args
    if kwargs.get("alpha", 1) != 1 or kwargs.get("beta", 1) != 1:
        raise NotImplementedError("`SparseSemiStructuredTensor` matmul: only alpha=1 and beta=1 supported in `addmm`")
    if bias.ndim != 1:
        raise NotImplementedError(f"`SparseSemiStructuredTensor` matmul: only bias dim=1 supported. Shape={bias.shape}")
    if not _is_sparse(b):
        raise NotImplementedError("`SparseSemiStructuredTensor` matmul: only operand B of `addmm` can be sparse")
    return b.t()._mm(a.t(), bias=bias).t()


class _Linear(mica.autograd.Function):
    """The product of rows and a sparse weight, with gradients for the rows and the bias. The weight comes in a list, because it
    gets no gradient."""

    @staticmethod
    def forward(ctx, rows, bias, held):
        ctx.weight, ctx.has_bias = held[0], bias is not None
        return ctx.weight._mm(rows.t(), bias=bias).t()

    @staticmethod
    def backward(ctx, gradient):
        weight = ctx.weight
        grad_rows = grad_bias = None
        if ctx.needs_input_grad[0]:
            if weight.packed_t is not None:
                grad_rows = weight.t()._mm(gradient.t()).t()
            else:
                grad_rows = gradient @ weight.to_dense()
        if ctx.has_bias and ctx.needs_input_grad[1]:
            grad_bias = gradient.sum(0)
        return grad_rows, grad_bias, None


def _linear(func, types, args, kwargs):
    x, weight = args[:2]
    bias = args[2] if len(args) > 2 else kwargs.get("bias")
    if not _is_sparse(weight) or _is_sparse(x):
        raise NotImplementedError("`SparseSemiStructuredTensor` linear: only the weight can be sparse")
    rows = x.reshape(-1, x.shape[-1])
    learns = mica.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad))
    product = _Linear.apply(rows, bias, [weight]) if learns else weight._mm(rows.t(), bias=bias).t()
    return product.reshape(*x.shape[:-1], weight.shape[0])


def _to_copy(func, types, args, kwargs):
    this = args[0]
    device = kwargs.get("device")
    if set(kwargs) - {"device", "non_blocking"} or device is None or mica.device(device).type != "cpu":
        raise NotImplementedError(
            f"`_to_copy()` with kwargs={kwargs} is not implemented for SparseSemiStructuredTensor. Only converting to CPU "
            "is supported currently."
        )
    parts, _ = this.__tensor_flatten__()
    return this._like(**{name: getattr(this, name).to("cpu") for name in parts})


def _is_same_size(func, types, args, kwargs):
    return args[0].shape == args[1].shape


def operations():
    """By operator."""
    aten = mica.ops.aten
    return {
        aten.values: _values,
        aten.indices: _indices,
        aten.is_same_size: _is_same_size,
        aten.detach_: _detach,
        aten.detach: _detach,
        aten.t: _t,
        aten.view: _view,
        aten.mm: _mm,
        aten.matmul: _mm,
        aten.addmm: _addmm,
        aten.linear: _linear,
        aten._to_copy: _to_copy,
        aten.clone: _clone,
    }
