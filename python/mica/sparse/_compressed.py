"""What Python adds to compressed sparse tensors."""

from mica import _C

__all__ = ["COMPRESSED", "resize_as"]

_LAYOUTS = {
    _C.sparse_csr: ("SparseCsr", "crow_indices", "col_indices"),
    _C.sparse_csc: ("SparseCsc", "ccol_indices", "row_indices"),
    _C.sparse_bsr: ("SparseBsr", "crow_indices", "col_indices"),
    _C.sparse_bsc: ("SparseBsc", "ccol_indices", "row_indices"),
}
COMPRESSED = frozenset(_LAYOUTS)


def resize_as(tensor, template):
    """Gives a compressed tensor the size and the indices of another one of its layout; its dtypes stay, its values are zero."""
    for name, each in (("self", tensor), ("src", template)):
        if each.layout not in COMPRESSED:
            got = "Strided" if each.layout == _C.strided else "Sparse"
            raise RuntimeError(
                f"resize_as_sparse_compressed_: {name}  expected sparse compressed tensor layout but got {got}"
            )
    if tensor.layout != template.layout:
        raise RuntimeError(
            "resize_as_sparse_compressed_tensor_: self and src must have the same layout, but got: self "
            f"({_LAYOUTS[tensor.layout][0]}) and source ({_LAYOUTS[template.layout][0]})"
        )
    _, compressed, plain = _LAYOUTS[tensor.layout]
    kept = getattr(tensor, plain)()
    parts = (getattr(template, part)().to(kept.device, kept.dtype, copy=True) for part in (compressed, plain))
    values = tensor.values().new_zeros(template.values().shape)
    tensor.data = _C._sparse_compressed_tensor_unsafe(*parts, values, template.shape, layout=tensor.layout)
    return tensor
