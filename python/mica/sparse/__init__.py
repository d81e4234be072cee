"""Sparse tensors: constructors, products, sums, softmax, and the checks of their parts."""

from mica import _C
from mica.sparse._construct import (  # noqa: F401 - names of the root that live here
    check_sparse_tensor_invariants,
    sparse_bsc_tensor,
    sparse_bsr_tensor,
    sparse_compressed_tensor,
    sparse_coo_tensor,
    sparse_csc_tensor,
    sparse_csr_tensor,
)
from mica.sparse._gradcheck import as_sparse_gradcheck
from mica.sparse._scipy import from_scipy, to_scipy  # noqa: F401 - Mica's own

__all__ = [
    "SparseSemiStructuredTensor",
    "SparseSemiStructuredTensorCUSPARSELT",
    "SparseSemiStructuredTensorCUTLASS",
    "addmm",
    "as_sparse_gradcheck",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "sum",
    "to_sparse_semi_structured",
]


def mm(mat1, mat2, reduce=None):
    """The product of a sparse matrix and a dense or sparse one. The gradient of a sparse operand is sparse.

    With `reduce` ("sum", "mean", "amax", "amin") the terms of each element of a CSR matrix' product are combined that way.
    """
    return _C._sparse_mm(mat1, mat2) if reduce is None else _C._sparse_mm(mat1, mat2, reduce)


def addmm(mat, mat1, mat2, *, beta=1.0, alpha=1.0):
    """beta * mat + alpha * (mat1 @ mat2) with a sparse mat1."""
    return _C._sparse_addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0, out=None):
    """beta * input + alpha * (mat1 @ mat2) at the indices of a CSR or COO matrix `input`."""
    result = _C._sparse.sampled_addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    if out is None:
        return result
    if out.layout != result.layout:
        raise RuntimeError(f"sampled_addmm: Expected out to have {result.layout} layout, but got {out.layout}")
    if result.requires_grad or (out.requires_grad and _C.is_grad_enabled()):
        words = "but one of the arguments requires grad."
        raise RuntimeError(
            f"sampled_addmm(): functions with out=... arguments don't support automatic differentiation, {words}"
        )
    if out.layout == _C.sparse_csr and out._nnz() != result._nnz():
        out.resize_as_sparse_(result)
    return out.copy_(result)


def sum(input, dim=None, dtype=None):
    """The sum over all elements, or over some dimensions: sparse as long as a sparse dimension is left."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return _C._sparse_sum(input) if dtype is None else _C._sparse_sum(input, dtype=dtype)
    return _C._sparse_sum(input, dim) if dtype is None else _C._sparse_sum(input, dim, dtype=dtype)


def softmax(input, dim, *, dtype=None):
    """Softmax over the elements that a sparse tensor holds; those it does not hold count as minus infinity."""
    return _C._sparse_softmax(input, dim, dtype)


def log_softmax(input, dim, *, dtype=None):
    """The logarithm of `softmax`."""
    return _C._sparse_log_softmax(input, dim, dtype)


def spdiags(diagonals, offsets, shape, layout=None):
    """A sparse matrix with the rows of `diagonals` on the diagonals `offsets`."""
    return _C._spdiags(diagonals, offsets, shape, layout)


_SEMI_STRUCTURED = (
    "SparseSemiStructuredTensor",
    "SparseSemiStructuredTensorCUSPARSELT",
    "SparseSemiStructuredTensorCUTLASS",
    "to_sparse_semi_structured",
)


def __getattr__(name):
    if name in _SEMI_STRUCTURED or name == "semi_structured":
        import importlib

        module = importlib.import_module("mica.sparse.semi_structured")
        globals().update({each: getattr(module, each) for each in _SEMI_STRUCTURED})
        return globals()[name] if name in _SEMI_STRUCTURED else module
    # The constructors of old, torch.sparse.FloatTensor and its like.
    if name.endswith("Tensor"):
        from mica._as_torch.legacy_types import sparse_types

        globals().update(sparse_types())
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
