"""Matrices of which two in every four elements of a row are kept: half the memory, and a GPU's sparse matrix unit.

weight = to_sparse_semi_structured(weight)  # zeros in two of every four elements already
y = torch.nn.functional.linear(x, weight, bias)

The products are CUDA's alone, as in torch. Mica computes them with kernels of its own, in the order of elements of torch's
CUTLASS form, which is the form that matrices get here. torch's other form is that of the library cuSPARSELt.
"""

import warnings
from collections import namedtuple

import mica
from mica import _C
from mica.sparse._semi_structured_conversions import (
    sparse_semi_structured_from_dense_cutlass,
    sparse_semi_structured_to_dense_cutlass,
    tile_mask,
)

__all__ = [
    "SparseSemiStructuredTensor",
    "SparseSemiStructuredTensorCUSPARSELT",
    "SparseSemiStructuredTensorCUTLASS",
    "to_sparse_semi_structured",
]

_SEMI_STRUCTURED_SPARSE_CONFIG = namedtuple(
    "_SEMI_STRUCTURED_SPARSE_CONFIG", "sparse_min_rows sparse_min_cols dense_min_rows dense_min_cols"
)
_PARTS = ("packed", "meta", "packed_t", "meta_t", "compressed_swizzled_bitmask")


class SparseSemiStructuredTensor(mica.Tensor):
    """The base of both kinds of such matrices: their parts, and the operations on them."""

    _DEFAULT_ALG_ID = 0
    _DTYPE_SHAPE_CONSTRAINTS = {}  # noqa: RUF012 - one table for a class
    _FORCE_CUTLASS = False
    _FUSE_TRANSPOSE = False
    BACKEND = ""
    SPARSE_DISPATCH = None
    __torch_function__ = _C._disabled_torch_function_impl
    _records_parts = True  # its gradients are those of the tensors that it is made of

    @staticmethod
    def __new__(
        cls,
        shape,
        packed,
        meta,
        packed_t,
        meta_t,
        compressed_swizzled_bitmask,
        fuse_transpose_cusparselt=False,
        alg_id_cusparselt=0,
        requires_grad=False,
    ):
        cls._load_dispatch_table()
        like = packed if packed is not None else packed_t
        if like is None:
            raise ValueError("At least one of packed or packed_t must be provided")
        made = mica.Tensor._make_wrapper_subclass(
            cls, shape, device=like.device, dtype=like.dtype, layout=like.layout, requires_grad=requires_grad
        )
        made.packed, made.meta, made.packed_t, made.meta_t = packed, meta, packed_t, meta_t
        made.compressed_swizzled_bitmask = compressed_swizzled_bitmask
        made.fuse_transpose_cusparselt = fuse_transpose_cusparselt
        made.alg_id_cusparselt = alg_id_cusparselt
        return made

    def __repr__(self):
        return f"{type(self).__name__}(shape={self.shape})"

    def __tensor_flatten__(self):
        parts = [name for name in _PARTS if getattr(self, name) is not None]
        return parts, (self.shape, self.fuse_transpose_cusparselt, self.alg_id_cusparselt, self.requires_grad)

    @classmethod
    def __tensor_unflatten__(cls, inner_tensors, tensor_meta, outer_size, outer_stride):
        shape, fuse_transpose, alg_id, requires_grad = tensor_meta
        return cls(
            shape,
            **{name: inner_tensors.get(name) for name in _PARTS},
            fuse_transpose_cusparselt=fuse_transpose,
            alg_id_cusparselt=alg_id,
            requires_grad=requires_grad,
        )

    def _like(self, shape=None, **parts):
        given = {name: parts.get(name, getattr(self, name)) for name in _PARTS}
        return type(self)(
            self.shape if shape is None else shape,
            **given,
            fuse_transpose_cusparselt=self.fuse_transpose_cusparselt,
            alg_id_cusparselt=self.alg_id_cusparselt,
            requires_grad=False,
        )

    def __deepcopy__(self, memo):
        made = self.detach().clone()
        memo[id(self)] = made.requires_grad_(self.requires_grad)
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        packet = func._overloadpacket
        if packet not in cls.SPARSE_DISPATCH:
            raise NotImplementedError(
                f"{cls.__name__} only supports a specific set of operations, can't perform requested op ({func.__name__})"
            )
        return cls.SPARSE_DISPATCH[packet](func, types, args, kwargs or {})

    @classmethod
    def _load_dispatch_table(cls, custom_dispatch_table=None):
        if getattr(cls, "SPARSE_DISPATCH", None) is None:
            from mica.sparse._semi_structured_ops import operations

            cls.SPARSE_DISPATCH = {**operations(), **(custom_dispatch_table or {})}

    @classmethod
    def _validate_device_dim_dtype_shape(cls, original_tensor):
        if not original_tensor.is_cuda:
            raise RuntimeError(
                f"Error original_tensor.device= {original_tensor.device} is not supported! Only CUDA tensors are currently "
                "supported."
            )
        if original_tensor.dim() != 2:
            raise RuntimeError(
                f"Error original_tensor.dim = {original_tensor.dim()} is not supported! Only 2d tensors are currently "
                "supported."
            )
        if not original_tensor.is_contiguous():
            raise RuntimeError(
                "Error original_tensor is not contiguous!Only contiguous tensors are currently supported."
            )
        least = cls._DTYPE_SHAPE_CONSTRAINTS.get(original_tensor.dtype)
        if least is None:
            raise RuntimeError(
                f"Error original_tensor.dtype {original_tensor.dtype} is not a supported dtype for {cls}!"
            )
        (rows, columns), units = original_tensor.shape, (least.sparse_min_rows, least.sparse_min_cols)
        if rows < units[0] or rows % units[0] or columns < units[1] or columns % units[1]:
            raise RuntimeError(
                f"Error original_tensor.shape {original_tensor.shape} is not supported! Both dimensions must be larger or "
                f"equal than and a multiple of {units}"
            )

    def to_dense(self):
        """The matrix with its zeros: its product with the unit matrix."""
        return mica.mm(self, mica.eye(self.shape[-1], dtype=self.dtype, device=self.device))

    @classmethod
    def from_dense(cls, original_tensor):
        """The form of a dense matrix."""
        raise NotImplementedError

    def _mm(self, B, *, bias=None, **kwargs):
        raise NotImplementedError

    def _check_product(self, B):
        if isinstance(B, SparseSemiStructuredTensor):
            raise ValueError(
                "`SparseSemiStructuredTensor @ SparseSemiStructuredTensor` is not supported by the hardware"
            )
        name = type(self).__name__
        if self.ndim != 2 or B.ndim != 2:
            raise NotImplementedError(f"`{name}` matmul: Broadcasting is not implemented")
        if self.packed is None:
            raise NotImplementedError(f"`{name}` matmul: operation is not supported")


def to_sparse_semi_structured(original_tensor, transposed=False, alg_id=0):
    """A matrix of which two in every four elements of a row are zero, in half of its memory.

    Two of every four are kept; where more are not zero, the rest is lost.
    """
    if transposed:
        warnings.warn(
            "Setting transpose from `to_sparse_semi_structured` is deprecated and will be removed in a future release. "
            "`SparseSemiStructuredTensor` only support contiguous input tensors.",
            FutureWarning,
            stacklevel=2,
        )
    return SparseSemiStructuredTensorCUTLASS.from_dense(original_tensor)


class SparseSemiStructuredTensorCUTLASS(SparseSemiStructuredTensor):
    """The kept elements in `packed`, the words that say where they were in `meta`."""

    BACKEND = "cutlass"
    _DTYPE_SHAPE_CONSTRAINTS = {  # noqa: RUF012
        _C.int8: _SEMI_STRUCTURED_SPARSE_CONFIG(16, 128, 16, 16),
        _C.float16: _SEMI_STRUCTURED_SPARSE_CONFIG(32, 64, 8, 8),
        _C.bfloat16: _SEMI_STRUCTURED_SPARSE_CONFIG(32, 64, 8, 8),
        _C.float32: _SEMI_STRUCTURED_SPARSE_CONFIG(32, 32, 4, 4),
    }

    @classmethod
    def from_dense(cls, original_tensor):
        cls._validate_device_dim_dtype_shape(original_tensor)
        packed, meta = sparse_semi_structured_from_dense_cutlass(original_tensor.detach())
        return cls(original_tensor.shape, packed, meta, None, None, None, requires_grad=original_tensor.requires_grad)

    def to_dense(self):
        if self.meta is None or self.packed is None:
            raise AssertionError("meta and packed must not be None")
        return sparse_semi_structured_to_dense_cutlass(self.packed, self.meta)

    @classmethod
    def prune_dense_static_sort(cls, original_tensor, algorithm=""):
        """Keep two elements of each row and column of every 4 x 4 tile: the matrix and its transpose, for training."""
        by_size = {"": False, "largest_values_greedy": False, "largest_abs_values_greedy": True}
        if algorithm not in by_size:
            raise NotImplementedError(f"prune_dense_static_sort: no algorithm {algorithm!r}, only {sorted(by_size)}")
        for each in (original_tensor, original_tensor.detach().t().contiguous()):
            cls._validate_device_dim_dtype_shape(each)
        dense = original_tensor.detach()
        mask = tile_mask(dense, by_size[algorithm])
        dense = dense * mask
        both = (
            *sparse_semi_structured_from_dense_cutlass(dense),
            *sparse_semi_structured_from_dense_cutlass(dense.t()),
        )
        return cls(dense.shape, *both, swizzled_bitmask(mask), requires_grad=False)

    def _mm(self, B, *, bias=None, **kwargs):
        self._check_product(B)
        return product(self, B, bias)


class SparseSemiStructuredTensorCUSPARSELT(SparseSemiStructuredTensor):
    """The form of the library cuSPARSELt, which Mica does not use."""

    BACKEND = "cusparselt"
    _DTYPE_SHAPE_CONSTRAINTS = {  # noqa: RUF012
        _C.float8_e4m3fn: _SEMI_STRUCTURED_SPARSE_CONFIG(32, 32, 16, 16),
        _C.int8: _SEMI_STRUCTURED_SPARSE_CONFIG(32, 32, 16, 16),
        _C.float16: _SEMI_STRUCTURED_SPARSE_CONFIG(16, 16, 8, 8),
        _C.bfloat16: _SEMI_STRUCTURED_SPARSE_CONFIG(16, 16, 8, 8),
    }

    @classmethod
    def from_dense(cls, original_tensor):
        cls._validate_device_dim_dtype_shape(original_tensor)
        raise NotImplementedError(f"{cls.__name__}: Mica has no cuSPARSELt; use SparseSemiStructuredTensorCUTLASS")

    @classmethod
    def prune_dense_static_sort(cls, original_tensor, algorithm=""):
        return cls.from_dense(original_tensor)

    def _mm(self, B, *, bias=None, **kwargs):
        self._check_product(B)
        raise NotImplementedError(
            f"{type(self).__name__}: Mica has no cuSPARSELt; use SparseSemiStructuredTensorCUTLASS"
        )


def swizzled_bitmask(mask):
    """A mask as bits: for each block of 8 x 8 four tiles of 4 x 4, two bytes each."""
    rows, columns = mask.shape
    # by block, half of a block, pair of rows, row of a pair; by block, half of a block, column
    tiles = mask.view(rows // 8, 2, 2, 2, columns // 8, 2, 4)
    tiles = tiles.permute(0, 4, 1, 5, 2, 3, 6).reshape(rows // 8, columns // 8, 4, 2, 8)
    return (tiles * _C.tensor([1, 2, 4, 8, 16, 32, 64, 128], device=mask.device)).sum(-1).to(_C.uint8)


def product(sparse, dense, bias=None, out_dtype=None):
    """The product with a dense matrix, plus one number for each row."""
    name = "_sparse_semi_structured_mm" if bias is None else "_sparse_semi_structured_addmm"
    if not sparse.device.type == "cuda":
        raise NotImplementedError(
            f"Could not run 'aten::{name}' with arguments from the '{sparse.device.type.upper()}' backend: products of "
            "semi-structured sparse matrices are CUDA's alone"
        )
    if sparse.shape[1] != dense.shape[0]:
        raise RuntimeError(
            f"{name}: mat1 and mat2 shapes cannot be multiplied ({sparse.shape[0]}x{sparse.shape[1]} and "
            f"{dense.shape[0]}x{dense.shape[1]})"
        )
    if sparse.dtype != dense.dtype:
        raise RuntimeError(
            f"{name}: expected mat1 and mat2 to have the same dtype, got {sparse.dtype} and {dense.dtype}"
        )
    rows, columns = sparse.shape[0], dense.shape[1]
    out_dtype = sparse.dtype if out_dtype is None else out_dtype
    if out_dtype != sparse.dtype and (sparse.dtype, out_dtype) != (_C.int8, _C.int32):
        raise RuntimeError(f"{name}: a product of {sparse.dtype} has that dtype, or int32 where that is int8")
    if bias is not None:
        if tuple(bias.shape) != (rows,):
            raise RuntimeError(f"{name}: expected a bias of {rows} elements, got {tuple(bias.shape)}")
        bias = bias.detach().to(out_dtype).contiguous()
    # The kernel reads along the inner dimension, in pieces of 16 bytes.
    columns_first = dense.detach().t()
    unit = 16 // dense.element_size()
    if columns_first.stride(1) != 1 or columns_first.stride(0) % unit or columns_first.data_ptr() % 16:
        columns_first = columns_first.clone(memory_format=mica.contiguous_format)
    # A dense operand that is a transposed batch of rows, as in linear, gives a result of the same layout.
    if dense.stride(0) == 1:
        out = _C.empty((columns, rows), dtype=out_dtype, device=dense.device).t()
    else:
        out = _C.empty((rows, columns), dtype=out_dtype, device=dense.device)
    if out.numel():
        _C._semi_structured_product(out, sparse.packed.contiguous(), sparse.meta.contiguous(), columns_first, bias)
    return out
