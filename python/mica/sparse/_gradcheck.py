"""gradcheck for functions of sparse tensors: they are taken apart into strided ones and put together inside."""

import functools

from mica import _C

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


def as_sparse_gradcheck(gradcheck):
    """Make a gradcheck function take inputs and outputs of any sparse layout."""

    @functools.wraps(gradcheck)
    def checked(func, inputs, **kwargs):
        masked = kwargs.pop("masked", False)
        inputs = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
        plain, layouts = [], []
        for x in inputs:
            sparse = (
                isinstance(x, _C.Tensor) and x.requires_grad and (x.layout is _C.sparse_coo or x.layout in _COMPRESSED)
            )
            if not sparse:
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
            return result if not isinstance(result, _C.Tensor) or result.layout is _C.strided else result.to_dense()

        def wrapped(*values):
            results = func(*(restore(v, like) for v, like in zip(values, layouts, strict=True)))
            return tuple(map(strided, results)) if isinstance(results, tuple) else strided(results)

        return gradcheck(wrapped, tuple(plain), **kwargs)

    return checked
