"""Batches of sequences of different lengths without padding: the jagged layout.

    x = nested.nested_tensor([a, b], layout=mica.jagged)   # of shape (2, j1, ...): j1 stands for a length of each
    x.values(), x.offsets(), x.unbind(), x.to_padded_tensor(0.0)

The sequences lie one after the other in `values`, so that what is computed element by element, or along the dimensions
after the ragged one, is one operation on `values`.
"""

import mica
from mica.nested._internal import indexing, ops, reductions, shapes  # noqa: F401 - they answer for nested tensors
from mica.nested._internal.nested_tensor import NestedTensor, jagged_of_parts, jagged_view
from mica.nested._internal.strided import StridedNestedTensor, strided_from_list

__all__ = [
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]


def _check_layout(name, layout):
    if layout is None or layout == mica.strided:
        if name in ("nested_tensor", "as_nested_tensor"):
            return
        raise RuntimeError(
            f"{name}(): the strided layout is not supported: pass layout=torch.jagged, which holds the sequences in one "
            "tensor of values and their offsets"
        )
    if layout != mica.jagged:
        raise RuntimeError(f"Specified layout is unsupported for nested tensors: {layout}")


def nested_tensor(tensor_list, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """A nested tensor with a copy of the sequences: a leaf."""
    _check_layout("nested_tensor", layout)
    parts = [t if isinstance(t, mica.Tensor) else mica.as_tensor(t) for t in tensor_list]
    make = jagged_of_parts if layout == mica.jagged else strided_from_list
    with mica.no_grad():
        made = make(parts, dtype, device)
        made = made.pin_memory() if pin_memory else made
    return made.requires_grad_() if requires_grad else made


def as_nested_tensor(ts, dtype=None, device=None, layout=None):
    """The sequences as a nested tensor, with their place in the graph."""
    is_list = isinstance(ts, (list, tuple)) and all(isinstance(t, mica.Tensor) for t in ts)
    if not isinstance(ts, mica.Tensor) and not is_list:
        raise TypeError("as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors ")
    if isinstance(ts, NestedTensor | StridedNestedTensor):
        if layout is not None and layout != ts.layout:
            raise RuntimeError("Converting between nested tensor layouts is not supported")
        if mica.device(device or ts.device) == ts.device and dtype in (None, ts.dtype):
            return ts
        return ts.to(device=device or ts.device, dtype=dtype or ts.dtype)
    if isinstance(ts, mica.Tensor) and ts.dim() < 2:
        raise RuntimeError("as_nested_tensor(): Expected tensor argument to have dim() > 1")
    _check_layout("as_nested_tensor", layout)
    if layout != mica.jagged:
        return strided_from_list(list(ts), dtype, device)
    if is_list:
        return jagged_of_parts(list(ts), dtype, device)
    batch, length = ts.shape[:2]
    values = ts.contiguous().flatten(0, 1).to(device=device or ts.device, dtype=dtype or ts.dtype)
    offsets = mica.arange(0, batch + 1, device=values.device) * length
    return jagged_view(values, offsets, known={"min_seqlen": length, "max_seqlen": length})


def nested_tensor_from_jagged(values, offsets=None, lengths=None, jagged_dim=None, min_seqlen=None, max_seqlen=None):
    """A view of values, whose sequences begin at offsets, as a nested tensor. It shares their memory and graph."""
    if offsets is None:
        if lengths is None:
            raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets, lengths = mica.nn.functional.pad(lengths.cumsum(0), (1, 0)), None
    jagged_dim = 1 if jagged_dim is None else jagged_dim
    if jagged_dim < 1:
        raise ValueError(f"Expected jagged_dim >=1, but got {jagged_dim}.")
    return jagged_view(values, offsets, lengths, jagged_dim, {"min_seqlen": min_seqlen, "max_seqlen": max_seqlen})


def narrow(tensor, dim, start, length, layout=mica.strided):
    """A nested tensor of parts of a tensor's rows, each with its own start and length. It is a view."""
    for name, given in (("start", start), ("length", length)):
        if not isinstance(given, (int, mica.Tensor)):
            raise RuntimeError(f"{name} must be an integer or a tensor")
    _check_layout("narrow", layout)
    if dim != 1:
        raise RuntimeError(f"jagged layout only supports dim=1, but got dim={dim}")
    batch, width = tensor.shape[:2]
    start = mica.as_tensor(start, device=tensor.device).long().expand(batch)
    length = mica.as_tensor(length, device=tensor.device).long().expand(batch)
    if bool(((start < 0) | (length < 0) | (start + length > width)).any()):
        raise RuntimeError(f"narrow(): start and length must lie within the size {width} of dimension 1")
    begin = mica.arange(batch, device=tensor.device) * width + start
    last = (begin[-1:] + length[-1:]) if batch else begin.new_zeros(1)
    return jagged_view(tensor.reshape(batch * width, *tensor.shape[2:]), mica.cat([begin, last]), length)


def masked_select(tensor, mask):
    """The elements of each row that a mask marks, as sequences."""
    for name, given in (("tensor", tensor), ("mask", mask)):
        if given.layout != mica.strided:
            raise RuntimeError(f"torch.nested.masked_select requires a strided {name}, given: {given.layout}")
    lengths = mask.expand(tensor.shape).sum(dim=tensor.ndim - 1).view(-1)
    return jagged_view(tensor.masked_select(mask), mica.nn.functional.pad(lengths.cumsum(dim=0), (1, 0)))


def to_padded_tensor(input, padding, output_size=None, out=None):
    """The sequences as rows of a plain tensor, with a number after their ends."""
    if not isinstance(input, NestedTensor | StridedNestedTensor):
        raise RuntimeError("at::to_padded_tensor: the input is not a nested tensor")
    padded = input.to_padded_tensor(padding, output_size)
    return padded if out is None else out.copy_(padded)
