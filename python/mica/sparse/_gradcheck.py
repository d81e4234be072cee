"""gradcheck for functions of sparse tensors: they are taken apart into strided ones and put together inside."""

import functools

from mica import _C
from mica.autograd.function import Function

_COMPRESSED = {
    _C.sparse_csr: ("crow_indices", "col_indices"),
    _C.sparse_bsr: ("crow_indices", "col_indices"),
    _C.sparse_csc: ("ccol_indices", "row_indices"),
    _C.sparse_bsc: ("ccol_indices", "row_indices"),
}


def _whole(x):
    """The tensor with every element held, zeros too: unmasked, all of them are varied."""
    places = _C.arange(1, x.numel() + 1, device=x.device).view(x.shape)
    if x.layout is _C.sparse_coo:
        held = places.to_sparse(x.sparse_dim()).coalesce()
    else:
        block = (
            x.values().shape[x.dim() - 1 - x.dense_dim() :][:2] if x.layout in (_C.sparse_bsr, _C.sparse_bsc) else None
        )
        held = places.to_sparse(layout=x.layout, blocksize=block, dense_dim=x.dense_dim())
    values = x.to_dense().reshape(-1)[held.values() - 1]
    if x.layout is _C.sparse_coo:
        return _C._sparse_coo_tensor_unsafe(held.indices(), values, x.shape, True)
    first, second = (getattr(held, name)() for name in _COMPRESSED[x.layout])
    return _C._sparse_compressed_tensor_unsafe(first, second, values, x.shape, x.layout)


def is_sparse(x):
    return isinstance(x, _C.Tensor) and (x.layout is _C.sparse_coo or x.layout in _COMPRESSED)


def of_strided(func, inputs, masked):
    """A function of strided tensors that stands for one of sparse tensors, and its inputs.

    Unmasked, an element that a sparse input does not hold is a zero like any other: where it is varied, the input holds
    it. Masked, it has no meaning, and nothing comes of varying it.
    """
    held = [_held(x) if is_sparse(x) and x.requires_grad else None for x in inputs]

    def wrapped(*given):
        pairs = zip(given, held, strict=True)
        return func(*(x if h is None else _AsSparse.apply(x, h, masked) for x, h in pairs))

    plain = [x if h is None else x.detach().to_dense().requires_grad_() for x, h in zip(inputs, held, strict=True)]
    return wrapped, tuple(plain)


def _held(x):
    """Where a sparse tensor holds elements, as a strided tensor of 0 and 1, and how it keeps them."""
    like = x.detach().coalesce() if x.layout is _C.sparse_coo else x.detach()
    ones = _C.ones_like(like.values(), dtype=_C.float64)
    if x.layout is _C.sparse_coo:
        return _C._sparse_coo_tensor_unsafe(like.indices(), ones, x.shape, True).to_dense(), (x.sparse_dim(),), {}
    first, second = (getattr(like, name)() for name in _COMPRESSED[x.layout])
    dense = _C._sparse_compressed_tensor_unsafe(first, second, ones, x.shape, x.layout).to_dense()
    block = like.values().shape[first.dim() :][:2] if x.layout in (_C.sparse_bsr, _C.sparse_bsc) else None
    return dense, (), {"layout": x.layout, "blocksize": block, "dense_dim": x.dense_dim()}


class _AsSparse(Function):
    """A strided tensor in the layout of a sparse one: it holds the same elements and, unmasked, those not zero."""

    @staticmethod
    def forward(ctx, x, held, masked):
        pattern, args, options = held
        places = pattern != 0 if masked else (pattern != 0) | (x != 0)
        places = places.to(x.dtype).to_sparse(*args, **options)
        return x.sparse_mask(places.coalesce() if places.layout is _C.sparse_coo else places)

    @staticmethod
    def backward(ctx, grad):
        return grad.to_dense() if is_sparse(grad) else grad, None, None


def as_sparse_gradcheck(gradcheck):
    """Make a gradcheck function take inputs and outputs of any sparse layout."""

    @functools.wraps(gradcheck)
    def checked(func, inputs, **kwargs):
        masked = kwargs.pop("masked", False)
        inputs = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
        plain, layouts = [], []
        for x in inputs:
            if not (is_sparse(x) and x.requires_grad):
                plain.append(x)
                layouts.append(None)
                continue
            x = x.detach()
            x = x.coalesce() if x.layout is _C.sparse_coo else x
            x = x if masked else _whole(x)
            layouts.append(x)
            plain.append(x.values().clone().requires_grad_())

        def restore(value, like):
            if like is None:
                return value
            if like.layout is _C.sparse_coo:
                return _C._sparse_coo_tensor_unsafe(like.indices(), value, like.shape, True)
            first, second = (getattr(like, name)() for name in _COMPRESSED[like.layout])
            return _C._sparse_compressed_tensor_unsafe(first, second, value, like.shape, like.layout)

        def strided(result):
            return result.to_dense() if is_sparse(result) else result

        def wrapped(*values):
            results = func(*(restore(v, like) for v, like in zip(values, layouts, strict=True)))
            return tuple(map(strided, results)) if isinstance(results, tuple) else strided(results)

        return gradcheck(wrapped, tuple(plain), **kwargs)

    return checked
