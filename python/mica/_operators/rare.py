"""Operators of torch's that few programs name: composed of others here, and loaded when one is asked for."""

import builtins
import math

import mica
from mica import _C
from mica._functions.wrapping import asks_as_called
from mica._operators.four_bits import _dyn_quant_matmul_4bit, _dyn_quant_pack_4bit_weight  # noqa: F401
from mica._operators.gradients import (  # noqa: F401
    _adaptive_avg_pool2d_backward,
    _adaptive_avg_pool3d_backward,
    adaptive_max_pool2d_backward,
    adaptive_max_pool3d_backward,
    avg_pool2d_backward,
    avg_pool3d_backward,
    fractional_max_pool2d_backward,
    nll_loss_backward,
    reflection_pad1d_backward,
    reflection_pad2d_backward,
    reflection_pad3d_backward,
    replication_pad1d_backward,
    replication_pad2d_backward,
    replication_pad3d_backward,
    to_chosen_places,
    unfold_backward,
    upsample_nearest2d_backward,
)
from mica._operators.quantized_makers import SCHEMAS as _QUANTIZED_MAKERS
from mica._operators.quantized_makers import (  # noqa: F401
    _choose_qparams_per_tensor,
    _empty_affine_quantized,
    _empty_per_channel_affine_quantized,
    _saturate_weight_to_fp16,
    choose_qparams_optimized,
)
from mica._operators.rare_layouts import (  # noqa: F401
    _convert_weight_to_int4pack_for_cpu,
    _indices_copy,
    _into,
    _values_copy,
    _weight_int4pack_mm_for_cpu,
    ccol_indices_copy,
    col_indices_copy,
    crow_indices_copy,
    empty_quantized,
    hsmm,
    indices_copy,
    quantized_batch_norm,
    quantized_max_pool1d,
    quantized_max_pool2d,
    quantized_max_pool3d,
    row_indices_copy,
    saddmm,
    spmm,
    values_copy,
)
from mica._operators.segments import segment_reduce
from mica._operators.sparse_makers import SCHEMAS as _SPARSE_MAKERS
from mica._operators.sparse_makers import (  # noqa: F401
    _convert_indices_from_coo_to_csr,
    _convert_indices_from_csr_to_coo,
    _sparse_compressed_tensor_with_dims,
    _sparse_coo_tensor_with_dims_and_tensors,
    _validate_compressed_sparse_indices,
)

# For torch.ops.aten (see mica._ops).
SCHEMAS = """\
elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor
elu_(Tensor(a!) self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor(a!)
slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)
_convert_weight_to_int4pack_for_cpu(Tensor self, int innerKTiles) -> Tensor
_weight_int4pack_mm_for_cpu(Tensor self, Tensor mat2, int qGroupSize, Tensor qScaleAndZeros) -> Tensor
_dyn_quant_pack_4bit_weight(Tensor weights, Tensor scales_zeros, Tensor? bias, int block_size, int in_features, int out_features) -> Tensor
_dyn_quant_matmul_4bit(Tensor inp, Tensor packed_weights, int block_size, int in_features, int out_features) -> Tensor
max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor
_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor
_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor
_chunk_cat(Tensor[] tensors, int dim, int num_chunks) -> Tensor
native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)
native_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor
hash_tensor(Tensor self, int[1] dim=[], *, bool keepdim=False, int mode=0) -> Tensor
_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor
_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, Tensor?[] indices, Tensor values) -> Tensor
avg_pool2d_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor
avg_pool3d_backward(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] stride, int[3] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor
_adaptive_avg_pool2d_backward(Tensor grad_output, Tensor self) -> Tensor
_adaptive_avg_pool3d_backward(Tensor grad_output, Tensor self) -> Tensor
adaptive_max_pool2d_backward(Tensor grad_output, Tensor self, Tensor indices) -> Tensor
adaptive_max_pool3d_backward(Tensor grad_output, Tensor self, Tensor indices) -> Tensor
fractional_max_pool2d_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] output_size, Tensor indices) -> Tensor
unfold_backward(Tensor grad_in, SymInt[] input_sizes, int dim, int size, int step) -> Tensor
nll_loss_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index, Tensor total_weight) -> Tensor
reflection_pad1d_backward(Tensor grad_output, Tensor self, SymInt[2] padding) -> Tensor
reflection_pad2d_backward(Tensor grad_output, Tensor self, SymInt[4] padding) -> Tensor
reflection_pad3d_backward(Tensor grad_output, Tensor self, SymInt[6] padding) -> Tensor
replication_pad1d_backward(Tensor grad_output, Tensor self, SymInt[2] padding) -> Tensor
replication_pad2d_backward(Tensor grad_output, Tensor self, SymInt[4] padding) -> Tensor
replication_pad3d_backward(Tensor grad_output, Tensor self, SymInt[6] padding) -> Tensor
upsample_nearest2d_backward(Tensor grad_output, SymInt[2] output_size, SymInt[4] input_size, float? scales_h=None, float? scales_w=None) -> Tensor
uniform(Tensor self, float from=0., float to=1., *, Generator? generator=None) -> Tensor
_add_relu.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
batch_norm_update_stats(Tensor input, Tensor? running_mean, Tensor? running_var, float momentum) -> (Tensor, Tensor)
_addmm_activation(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, bool use_gelu=False) -> Tensor
"""
SCHEMAS += _QUANTIZED_MAKERS + _SPARSE_MAKERS


def elu(input, alpha=1, scale=1, input_scale=1, *, out=None):
    """nn.functional.elu with the operator's scales: scale * alpha * (exp(input_scale * x) - 1) below zero."""
    if scale == 1 and input_scale == 1:
        return _into(mica.nn.functional.elu(input, alpha), out)
    return _into(_C.where(input > 0, input * scale, _C.expm1(input * input_scale) * (alpha * scale)), out)


def elu_(input, alpha=1, scale=1, input_scale=1):
    """The same in place."""
    if scale == 1 and input_scale == 1:
        return mica.nn.functional.elu_(input, alpha)
    return input.copy_(elu(input, alpha, scale, input_scale))


def _safe_softmax(input, dim, dtype=None):
    """softmax, with zeros where all elements are -inf."""
    empty = (input == -math.inf).all(dim, keepdim=True)  # applied before softmax too, whose gradient would be NaN there
    return _C.softmax(input.masked_fill(empty, 0.0), dim, dtype=dtype).masked_fill(empty, 0.0)


def _softmax_backward_data(grad_output, output, dim, input_dtype, *, grad_input=None):
    """The gradient of softmax from its output."""
    wide = _C.float32 if output.dtype in (_C.float16, _C.bfloat16) else output.dtype
    output, product = output.to(wide), grad_output.to(wide) * output.to(wide)
    return _into((product - output * product.sum(dim, keepdim=True)).to(input_dtype), grad_input)


def _native_batch_norm_legit(input, weight, bias, *rest, out=None):
    """native_batch_norm, with running statistics or without."""
    mean, var, training, momentum, eps = rest if len(rest) == 5 else (None, None, *rest)
    results = _C.native_batch_norm(input, weight, bias, mean, var, training, momentum, eps)
    return results if out is None else tuple(map(_into, results, out))


def _batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps):
    """native_batch_norm in training, and room for what a library of the device may want to keep."""
    results = _C.native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*results, _C.empty(0, dtype=_C.uint8))


def _upsample_bilinear2d_aa(
    input, output_size, align_corners, scales_h=None, scales_w=None, *, scale_factors=None, out=None
):
    """Bilinear interpolation over the whole area of a pixel."""
    if scale_factors is not None:
        scales_h, scales_w = scale_factors
    if isinstance(scales_h, list | tuple):  # (input, output_size, align_corners, scale_factors)
        scales_h, scales_w = scales_h
    if output_size is None:
        output_size = [int(n * s) for n, s in zip(input.shape[-2:], (scales_h, scales_w), strict=True)]
    from mica._operators.resizing import resized

    return _into(resized(input, output_size, "bilinear", align_corners, True, (scales_h, scales_w)), out)


def max_pool2d_with_indices_backward(
    grad_output, input, kernel_size, stride, padding, dilation, ceil_mode, indices, *, grad_input=None
):
    """The gradient of max_pool2d: each element of the output's gradient goes to the place that its index names."""
    for d, (one, two) in enumerate(zip(grad_output.shape, indices.shape, strict=False)):
        if one != two or grad_output.dim() != indices.dim():
            raise RuntimeError(
                f"Expected a tensor of dimension {grad_output.dim()} and tensor.size[{d}] == {one} but got : dimension "
                f"{indices.dim()} and tensor.size[{d}] = {two}"
            )
    return _into(to_chosen_places(grad_output, input, indices, 2), grad_input)


def _add_relu(input, other, *, alpha=1, out=None):
    """relu(input + alpha * other)."""
    return _into(_C.relu(_C.add(input, other, alpha=alpha)), out)


def batch_norm_update_stats(input, running_mean, running_var, momentum):
    """Means and variances of the channels, which the running ones are moved towards by `momentum`."""
    if input.numel() == 0:
        raise RuntimeError(f"input tensor must have at least one element, but got input_sizes = {list(input.shape)}")
    over = [d for d in range(input.dim()) if d != 1]
    mean, var = input.mean(over), input.var(over, correction=0)
    with mica.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        if running_var is not None:
            count = input.numel() // input.size(1)
            running_var.lerp_((var * (count / max(count - 1, 1))).to(running_var.dtype), momentum)
    return mean, var


def uniform(input, low=0.0, high=1.0, *, generator=None, **named):
    """Uniform numbers in the place of a tensor's. The bounds are `from` and `to`, of which Python has the first as a keyword."""
    low, high = named.pop("from", low), named.pop("to", high)
    if named:
        raise TypeError(f"uniform() got an unexpected keyword argument {next(iter(named))!r}")
    return _C.empty_like(input).uniform_(low, high, generator=generator)


def slice(input, dim=0, start=None, end=None, step=1):
    """input[start:end:step] of a dimension."""
    index = [builtins.slice(None)] * (dim % input.dim()) + [builtins.slice(start, end, step)]
    return input[tuple(index)]


def slice_inverse(input, src, dim=0, start=None, end=None, step=1):
    """The tensor that `input` would be a slice of, which has the geometry of `src`."""
    return input.as_strided(src.shape, src.stride(), src.storage_offset())


def _within(input, indices):
    return [None if index is None else index.clamp(0, max(input.shape[d] - 1, 0)) for d, index in enumerate(indices)]


def _unsafe_masked_index(input, mask, indices, fill):
    """input[indices] where the mask is true, `fill` elsewhere; indices may lie outside where the mask is false."""
    if input.numel() == 0:
        meant = _C.broadcast_tensors(*[index for index in indices if index is not None], mask)
        return input.new_full(meant[-1].shape, fill)
    taken = input[tuple(builtins.slice(None) if index is None else index for index in _within(input, indices))]
    return taken.masked_fill(mask.logical_not(), fill)


def _unsafe_masked_index_put_accumulate(input, mask, indices, values):
    """Adds values to input[indices] where the mask is true."""
    if input.numel() == 0:
        return input.clone()
    result = input.clone()
    return result.index_put_(_within(input, indices), values.masked_fill(mask.logical_not(), 0), accumulate=True)


def _chunk_cat(tensors, dim, num_chunks, *, out=None):
    """Each tensor cut into chunks along a dimension, padded to equal ones; chunk by chunk, joined."""
    if not tensors:
        raise RuntimeError("_chunk_cat expects a non-empty input tensor list")
    if num_chunks < 1:
        raise RuntimeError("_chunk_cat expects positive num_chunks")
    first = tensors[0]
    rank = first.dim()
    if any(t.numel() == 0 for t in tensors):
        raise RuntimeError("_chunk_cat expects non-empty tensor")
    if dim < 0 and any(t.dim() != rank for t in tensors):
        raise RuntimeError("_chunk_cat expects non-negative dim when input tensors have different ndims")
    if any(not -t.dim() <= dim < t.dim() for t in tensors):
        raise RuntimeError("_chunk_cat expects dim < ndim for all input tensors")
    dim = dim % rank
    if any(t.shape[:dim] != first.shape[:dim] for t in tensors):
        raise RuntimeError("_chunk_cat expects same sizes of 0,...,dim-1 dimensions for all tensors")
    rows = []
    for tensor in tensors:
        size = -(-tensor.shape[dim] // num_chunks)
        lacking = size * num_chunks - tensor.shape[dim]
        if lacking:
            shape = [*tensor.shape[:dim], lacking, *tensor.shape[dim + 1 :]]
            tensor = _C.cat([tensor, tensor.new_zeros(shape)], dim)
        rows.append(tensor.reshape(*tensor.shape[:dim], num_chunks, -1))
    return _into(_C.cat(rows, dim + 1), out)


def native_dropout(input, p, train):
    """Dropout, and which elements were kept."""
    if train is False or p == 0:
        return input.clone(), _C.ones_like(input, dtype=_C.bool)
    if p == 1:
        return _C.zeros_like(input), _C.zeros_like(input, dtype=_C.bool)
    kept = _C.empty_like(input).bernoulli_(1 - p).to(_C.bool)
    return input * kept * (1 / (1 - p)), kept


def native_dropout_backward(grad_output, mask, scale, *, out=None):
    """The gradient of native_dropout."""
    return _into(grad_output * mask * scale, out)


def hash_tensor(input, dim=(), *, keepdim=False, mode=0, out=None):
    """The exclusive or of the elements' bits, widened to 64, as uint64."""
    if mode != 0:
        raise RuntimeError(f"hash_tensor: mode {mode} is not there; 0 is the exclusive or of all bits")
    if input.is_complex():
        raise RuntimeError("hash_tensor: complex tensors are not supported")
    wide = input.detach().to(_C.float64 if input.is_floating_point() else _C.int64).contiguous()
    bits = wide.view(_C.int64)
    bits = bits.reshape(1) if input.dim() == 0 else bits
    dims = sorted({d % bits.dim() for d in ([dim] if isinstance(dim, int) else dim or range(bits.dim()))})
    shape = [1 if d in dims else n for d, n in enumerate(input.shape)]
    kept = [d for d in range(bits.dim()) if d not in dims]
    rows = bits.permute(kept + dims).reshape(math.prod(input.shape[d] for d in kept), -1 if bits.numel() else 0)
    if rows.shape[1] == 0:
        rows = rows.new_zeros(rows.shape[0], 1)
    while rows.shape[1] > 1:
        half = rows.shape[1] // 2
        folded = rows[:, :half] ^ rows[:, half : 2 * half]
        if rows.shape[1] % 2:
            folded[:, 0] ^= rows[:, -1]
        rows = folded
    result = rows.reshape(shape if keepdim else [input.shape[d] for d in kept]).view(_C.uint64)
    return _into(result, out)


_segment_reduce = segment_reduce


def native_norm(input, p=2, dim=(), keepdim=False, dtype=None):
    """norm"""
    return _C.norm(input, 2 if p is None else p, tuple(dim) or None, keepdim, dtype=dtype)


def nuclear_norm(input, dim=None, keepdim=False, *, out=None):
    """The sum of the singular values."""
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    dims = (-2, -1) if dim is None else tuple(dim)
    if dim is None and input.dim() != 2:
        raise RuntimeError(
            f"Expected a tensor with 2 dimensions, but got a tensor with {input.dim()} dimensions instead."
        )
    return _into(mica.linalg.matrix_norm(input, "nuc", dims, keepdim), out)


def _addmm_activation(input, mat1, mat2, *, beta=1, alpha=1, use_gelu=False, out=None):
    """addmm, then relu or gelu."""
    result = _C.addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    # On a GPU torch leaves gelu to cuBLAS, which has the form with tanh.
    form = "tanh" if result.is_cuda else "none"
    return _into(mica.nn.functional.gelu(result, approximate=form) if use_gelu else result.relu(), out)


# ---- what torch has removed

_REMOVED = {
    "eig": "torch.linalg.eig(A), whose results are complex",
    "lstsq": "torch.linalg.lstsq(A, B).solution; mind the order of the arguments",
    "matrix_rank": "torch.linalg.matrix_rank(A); the parameter 'symmetric' is now 'hermitian'",
    "solve": "torch.linalg.solve(A, B); mind the order of the arguments",
    "symeig": "torch.linalg.eigh(A, UPLO='U' if upper else 'L')",
}


def _removed(name, instead):
    def function(*args, **kwargs):
        raise RuntimeError(f"This function was deprecated since version 1.9 and is now removed. Use {instead}.")

    function.__name__ = name
    function.__doc__ = f"Removed: use {instead}."
    return function


eig, lstsq, matrix_rank, solve, symeig = (_removed(name, instead) for name, instead in _REMOVED.items())

# Arguments that are not tensors and have a __torch_function__ are asked, as the engine's functions do.
for _name in (
    "_addmm_activation", "_batch_norm_with_update", "_chunk_cat", "_indices_copy", "_native_batch_norm_legit", "_safe_softmax",
    "_softmax_backward_data", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "_values_copy",
    "batch_norm_update_stats", "ccol_indices_copy", "col_indices_copy", "crow_indices_copy", "hash_tensor",
    "hsmm", "indices_copy", "native_dropout",
    "native_norm", "nuclear_norm", "quantized_batch_norm", "quantized_max_pool1d", "quantized_max_pool2d",
    "quantized_max_pool3d", "row_indices_copy", "saddmm", "slice_inverse", "spmm", "values_copy",
):  # fmt: skip
    globals()[_name] = asks_as_called(globals()[_name])
dsmm = spmm
