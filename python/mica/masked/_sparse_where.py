"""`torch.where` of a mask that may be sparse: what it lets through has a place in the result, the rest has none."""

import mica

__all__ = ["_where"]


def _keys(indices, sizes):
    """One number for each column of indices, in the order of the places."""
    key = mica.zeros_like(indices[0])
    for row, size in zip(indices, sizes, strict=True):
        key = key * size + row
    return key


def _coo_where(mask, input, fill_value):
    if input.layout is not mica.sparse_coo or mask.shape != input.shape or mask.dense_dim() != input.dense_dim():
        raise AssertionError(
            "a sparse mask and its input must have one layout, shape and number of dense dimensions, got "
            f"{mask.layout} and {input.layout}, {mask.shape} and {input.shape}"
        )
    input, mask = input.coalesce(), mask.coalesce()
    lets_through = mask.values()
    chosen = lets_through.flatten(1).any(1) if lets_through.dim() > 1 else lets_through
    indices, lets_through = mask.indices()[:, chosen], lets_through[chosen]
    sizes = input.shape[: input.sparse_dim()]
    wanted, present = _keys(indices, sizes), _keys(input.indices(), sizes)
    values = input.values().new_zeros((len(wanted), *input.values().shape[1:]))
    if len(present):
        place = mica.searchsorted(present, wanted).clamp(max=len(present) - 1)
        found = present[place] == wanted
        values[found] = input.values()[place[found]]
    if lets_through.dim() > 1:
        values = mica.where(lets_through, values, fill_value)
    return mica.sparse_coo_tensor(indices, values, input.shape)._coalesced_(True)


def _where(mask, input, fill_value):
    """Where the mask is true the input's elements, zero where the input has none; elsewhere nothing, or fill_value.

    Elements that the mask leaves out have no place in a sparse result; in its dense dimensions they are fill_value.
    """
    if mask.layout is mica.strided:
        return mica.where(mask, input, fill_value)
    if mask.layout is mica.sparse_coo:
        return _coo_where(mask, input, fill_value)
    if mask.layout is mica.sparse_csr:
        return _coo_where(mask.to_sparse_coo(), input.to_sparse_coo(), fill_value).to_sparse_csr()
    raise ValueError(f"_where expects strided or sparse COO or sparse CSR tensor but got {mask.layout}")
