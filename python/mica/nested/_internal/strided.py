"""Nested tensors of the strided layout: parts of any sizes, one after the other in one buffer.

The tensor itself is the buffer, so that autograd treats it like any other. What works element by element is one
operation on the buffer; everything else is done part by part.
"""

import itertools
import math

import mica
from mica import _C, _utils
from mica._functions.families import own_name
from mica.func._batch_rules import POINTWISE

Tensor = mica.Tensor
_POINTWISE = frozenset((*POINTWISE, "dropout", "masked_fill", "rrelu"))
_IN_PLACE = frozenset(
    [f"{name}_" for name in POINTWISE if not name.startswith("_")] + ["copy_", "zero_", "fill_", "rrelu_"]
)
_SAME = frozenset(
    """
    clone contiguous detach to float double half bfloat16 int long bool cpu cuda type_as zeros_like ones_like
    empty_like full_like rand_like randn_like
    """.split()  # noqa: SIM905
)


def strided_view(buffer, sizes):
    """A buffer as a nested tensor whose parts have these sizes."""
    with _C.DisableTorchFunctionSubclass():
        made = buffer.as_subclass(StridedNestedTensor)
    made._part_sizes = [tuple(size) for size in sizes]
    return made


def strided_from_list(parts, dtype=None, device=None):
    """The parts one after the other, in the graph."""
    parts = [p if isinstance(p, Tensor) else mica.as_tensor(p) for p in parts]
    first = parts[0] if parts else mica.empty(0)
    if any(p.dim() != first.dim() for p in parts):
        raise RuntimeError("All Tensors given to nested_tensor must have the same dimension.")
    if any(p.dtype != first.dtype or p.device != first.device for p in parts):
        raise RuntimeError("When constructing a nested tensor, all tensors in list must have the same dtype and device")
    buffer = mica.cat([p.reshape(-1) for p in parts]) if parts else first
    buffer = buffer.to(device=device or buffer.device, dtype=dtype or buffer.dtype)
    return strided_view(buffer, [p.shape for p in parts])


class StridedNestedTensor(Tensor):
    """Tensors of one number of dimensions and any sizes as one tensor of shape (batch, ...)."""

    _values_are_plain = True  # for Tensor's methods that return a value

    is_nested = True
    layout = mica.strided

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return call(func, args, kwargs or {})

    def buffer(self):
        """The elements of all parts, a plain tensor of one dimension in the same graph."""
        with _C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)

    values = buffer

    def dim(self):
        return 1 + (len(self._part_sizes[0]) if self._part_sizes else 0)

    ndimension = dim
    ndim = property(dim)

    def numel(self):
        return self.buffer().numel()

    nelement = numel

    def __len__(self):
        return len(self._part_sizes)

    def size(self, dim=None):
        if dim is None:
            raise RuntimeError(
                "Internal error: NestedTensorImpl doesn't support sizes. Please file an issue. size(dim) is there for a "
                "dimension that all parts have in common, and unbind() for each part's own"
            )
        at = dim % self.dim()
        if at == 0:
            return len(self)
        found = {size[at - 1] for size in self._part_sizes}
        if len(found) != 1:
            raise RuntimeError(
                f"Given dimension {dim} is irregular and does not have a size: Tensor.size(dim) of a nested tensor"
            )
        return found.pop()

    @property
    def shape(self):
        return self.size()

    def _nested_tensor_size(self):
        """The sizes of the parts, a row for each."""
        return mica.tensor(self._part_sizes, dtype=mica.int64).reshape(len(self), self.dim() - 1)

    def unbind(self, dim=0):
        """The parts: views of the buffer."""
        if dim != 0:
            raise RuntimeError(f"NestedTensor can only be unbound along dimension 0 got dimension {dim} instead.")
        parts = self.buffer().split([math.prod(size) for size in self._part_sizes])
        return tuple(p.reshape(size) for p, size in zip(parts, self._part_sizes, strict=True))

    def to_padded_tensor(self, padding, output_size=None):
        """The parts in a plain tensor that is as large as the largest in each dimension, with a number elsewhere."""
        parts = self.unbind()
        if parts and not any(part.numel() for part in parts):
            raise RuntimeError(
                "to_padded_tensor: at least one constituent tensor should have non-zero numel, and a plain tensor of no "
                "elements is made by torch.empty"
            )
        wanted = [max(sizes) for sizes in zip(*self._part_sizes, strict=True)] if parts else []
        if output_size is not None:
            if len(output_size) != self.dim() or any(a > b for a, b in zip(wanted, output_size[1:], strict=True)):
                raise RuntimeError(
                    "Value in output_size is less than NestedTensor padded size. Truncation is not supported."
                )
            wanted = list(output_size[1:])
        rows = []
        for part in parts:
            pads = [n for have, want in zip(part.shape[::-1], wanted[::-1], strict=True) for n in (0, want - have)]
            rows.append(mica.nn.functional.pad(part, pads, value=padding))
        return mica.stack(rows) if rows else self.buffer().new_zeros(0)

    def is_contiguous(self, memory_format=None):
        return True

    def item(self):
        raise RuntimeError("a nested tensor has no single value: see unbind()")

    tolist = numpy = __array__ = __float__ = __int__ = __bool__ = item

    def __repr__(self, *, tensor_contents=None):
        parts = ",\n".join("  " + repr(p.detach()).replace("\n", "\n  ") for p in self.unbind())
        extra = ", requires_grad=True" if self.requires_grad and self.is_leaf else ""
        return f"nested_tensor([\n{parts}\n]{extra})"

    def _nested_tensor_strides(self):
        """The strides of the parts, a row for each."""
        rows = [[math.prod(size[d + 1 :]) for d in range(len(size))] for size in self._part_sizes]
        return mica.tensor(rows, dtype=mica.int64).reshape(len(self), self.dim() - 1)

    def _nested_tensor_storage_offsets(self):
        """Where each part begins in the buffer."""
        starts = [0, *itertools.accumulate(math.prod(size) for size in self._part_sizes)]
        return mica.tensor(starts[: len(self)], dtype=mica.int64)

    def __reduce_ex__(self, protocol):
        buffer = self.buffer().detach().requires_grad_(self.requires_grad)
        geometry = self._nested_tensor_size(), self._nested_tensor_strides(), self._nested_tensor_storage_offsets()
        return _utils._rebuild_nested_tensor, (buffer, *geometry)

    def __deepcopy__(self, memo):
        made = strided_view(self.buffer().detach().clone(), self._part_sizes)
        return made.requires_grad_() if self.requires_grad else made


def strided_from_geometry(buffer, sizes, strides, offsets):
    """The nested tensor of a file: parts of these sizes, strides and beginnings in a buffer."""
    requires_grad, buffer = buffer.requires_grad, buffer.detach()
    sizes = [tuple(size) for size in sizes.tolist()]
    made = strided_view(buffer, sizes)
    packed = made.buffer().numel() == sum(math.prod(size) for size in sizes)
    if not (
        packed and strides.equal(made._nested_tensor_strides()) and offsets.equal(made._nested_tensor_storage_offsets())
    ):
        geometry = zip(sizes, strides.tolist(), offsets.tolist(), strict=True)
        made = strided_from_list([buffer.as_strided(*part).clone() for part in geometry])
    return made.requires_grad_() if requires_grad else made


def _nested_in(args):
    return [x for x in args if isinstance(x, StridedNestedTensor)]


_REFUSALS = {
    "softmax": "Cannot apply softmax across nested dimension 0",
    "transpose": "Nested tensor dimension 0 cannot be transposed",
    "sum": "NestedTensor can only be reduced across the last dimension for now got dimension 0 instead",
}


def _below(dim, nested, name):
    """A dimension of the nested tensor as one of each part, or several."""
    if isinstance(dim, (tuple, list)):
        return [_below(each, nested, name) for each in dim]
    count = nested.dim()
    if not -count <= dim < count:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {dim})")
    at = dim % count
    if at == 0:
        why = "the first dimension of a nested tensor, that of its parts, cannot be computed along"
        raise RuntimeError(f"{_REFUSALS[name]}: {why}" if name in _REFUSALS else why)
    return at - 1


# Functions that take one dimension or two: the place among the arguments, the name, and the default.
_DIMS = {
    "softmax": ((1, "dim"),),
    "log_softmax": ((1, "dim"),),
    "sum": ((1, "dim"),),
    "mean": ((1, "dim"),),
    "cumsum": ((1, "dim"),),
    "transpose": ((1, "dim0"), (2, "dim1")),
    "chunk": ((2, "dim"),),
    "split": ((2, "dim"),),
    "split_with_sizes": ((2, "dim"),),
    "select": ((1, "dim"),),
    "unsqueeze": ((1, "dim"),),
    "squeeze": ((1, "dim"),),
}
_BY_PART = frozenset(
    """
    linear layer_norm rms_norm embedding matmul bmm __matmul__ scaled_dot_product_attention normalize tril triu
    softmin gelu glu prelu
    """.split()  # noqa: SIM905
)


def _as_parts(func, args, kwargs, nested):
    """Calls the function for each part. Each nested argument contributes its part, and others are the same for all."""
    columns = [x.unbind() if isinstance(x, StridedNestedTensor) else None for x in args]
    named = {k: x.unbind() for k, x in kwargs.items() if isinstance(x, StridedNestedTensor)}
    results = []
    for i in range(len(nested)):
        given = [x if column is None else column[i] for x, column in zip(args, columns, strict=True)]
        results.append(func(*given, **{**kwargs, **{k: column[i] for k, column in named.items()}}))
    if results and isinstance(results[0], tuple | list):
        return tuple(strided_from_list(list(column)) for column in zip(*results, strict=True))
    return strided_from_list(results)


def _viewed(nested, size, name):
    """Every part in another shape; -1 is the part's own size where it has that dimension."""
    size = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
    if not len(nested):
        raise RuntimeError("empty nested tensor cannot be reshaped")
    if not size:
        raise RuntimeError("shape '[]' is invalid for a nested tensor")
    if size[0] != len(nested):
        raise RuntimeError(f"{name}: For now nested {name} cannot change or infer the implicit batch dimension")
    if size[1:].count(-1) > 1:
        raise RuntimeError("only one dimension can be inferred")
    wanted = [[own[d] if n == -1 and d < len(own) else n for d, n in enumerate(size[1:])] for own in nested._part_sizes]
    return strided_from_list([part.reshape(one) for part, one in zip(nested.unbind(), wanted, strict=True)])


def _narrowed(nested, dim, start, length):
    """Some of the parts: a view of their piece of the buffer."""
    if dim % nested.dim() != 0:
        raise RuntimeError("narrow(): only dim=0 supported for nested tensors, but got: " + str(dim))
    count = len(nested)
    start = start + count if start < 0 else start
    if not (0 <= start <= count and 0 <= length <= count - start):
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({count}).")
    ends = [0, *itertools.accumulate(math.prod(size) for size in nested._part_sizes)]
    return strided_view(nested.buffer()[ends[start] : ends[start + length]], nested._part_sizes[start : start + length])


_NOT_BOTH = "to be nested, but got a {} self and {} other"


def _check_both(name, args, others):
    """torch's refusals of a plain tensor beside a nested one."""
    if len(args) < 2 or len(others) != 1 or not all(isinstance(x, Tensor) for x in args[:2]):
        return
    kinds = ("nested", "non-nested") if isinstance(args[0], StridedNestedTensor) else ("non-nested", "nested")
    plain = args[1] if kinds[0] == "nested" else args[0]
    if name == "matmul" and (kinds[0] == "non-nested" or plain.dim() < 2):
        raise RuntimeError("Expected both " + _NOT_BOTH.format(*kinds))
    if name in _IN_PLACE and kinds[0] == "non-nested":
        if plain.dim() == 0:
            raise RuntimeError(
                f"output with shape [] doesn't match the broadcast shape [{len(args[1])}, ...] of a nested tensor"
            )
        raise RuntimeError("Expected both self and other " + _NOT_BOTH.format(*kinds))


def call(func, args, kwargs):
    """What a function does with nested tensors of the strided layout."""
    name = own_name(func)
    nested = (_nested_in(args) or _nested_in(kwargs.values()) or [None])[0]
    if name in ("__get__", "__set__") or nested is None:
        with _C.DisableTorchFunctionSubclass():
            found = func(*args, **kwargs)
        # The gradient of the buffer is that of the parts.
        return strided_view(found, nested._part_sizes) if isinstance(found, Tensor) and nested is not None else found
    others = _nested_in((*args, *kwargs.values()))
    if name in ("view", "reshape"):
        return _viewed(nested, args[1:] or tuple(kwargs.values()), name)
    if name == "narrow":
        return _narrowed(**dict(zip(("nested", "dim", "start", "length"), args, strict=False)), **kwargs)
    _check_both(name, args, others)
    wanted = kwargs.get("memory_format")
    if name == "clone" and wanted not in (None, mica.preserve_format, mica.contiguous_format):
        shown = {mica.channels_last: "ChannelsLast", mica.channels_last_3d: "ChannelsLast3d"}[wanted]
        raise RuntimeError(
            "Nested tensor clone supports Preserve and Contiguous memory formats, called clone with memory format: "
            + shown
        )
    if name in _POINTWISE or name in _IN_PLACE:
        if any(other._part_sizes != nested._part_sizes for other in others):
            raise RuntimeError(f"{name}: the sizes of nested tensors must match exactly, part by part")
        dense = [x for x in args if isinstance(x, Tensor) and not isinstance(x, StridedNestedTensor) and x.dim()]
        if dense and name == "fill_":
            raise RuntimeError("fill_ only supports 0-dimension value tensor")
        if dense and name in _IN_PLACE:
            raise RuntimeError("Expected both self and other to be nested, but got a nested self and non-nested other")
        if dense:  # one part of it for each part
            if any(x.dim() != nested.dim() or x.shape[0] != len(nested) for x in dense):
                kinds = ("nested", "non-nested") if args[0] is nested else ("non-nested", "nested")
                raise RuntimeError(
                    f"Expected both self and other {_NOT_BOTH.format(*kinds)}; {name} takes a plain tensor of "
                    f"{nested.dim()} dimensions, with a part for each of the {len(nested)} parts"
                )
            args = [strided_from_list(list(x)) if any(x is d for d in dense) else x for x in args]
            return _as_parts(func, args, kwargs, nested)
        values = [x.buffer() if isinstance(x, StridedNestedTensor) else x for x in args]
        made = func(*values, **{k: x.buffer() if isinstance(x, StridedNestedTensor) else x for k, x in kwargs.items()})
        return nested if name in _IN_PLACE else strided_view(made, nested._part_sizes)
    if name == "requires_grad_":
        with _C.DisableTorchFunctionSubclass():
            func(nested, *args[1:], **kwargs)
        return nested
    if name in _SAME:
        given = [x.buffer() if isinstance(x, StridedNestedTensor) else x for x in args]
        named = {key: x.buffer() if isinstance(x, StridedNestedTensor) else x for key, x in kwargs.items()}
        made = func(*given, **named)
        return nested if made is given[0] else strided_view(made, nested._part_sizes)
    if name == "is_same_size":
        if len(others) != 2:
            one, two = ("nested" if isinstance(x, StridedNestedTensor) else "not nested" for x in args)
            raise RuntimeError(
                f"Expected both self and other to be nested tensors. Self is {one}. While Other is {two}."
            )
        return others[0]._part_sizes == others[1]._part_sizes
    if name in ("sum", "mean") and len(args) == 1 and "dim" not in kwargs:
        return func(nested.buffer(), **kwargs)
    if name == "__getitem__":
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        if index == (Ellipsis,):
            return strided_view(nested.buffer(), nested._part_sizes)
        if index and isinstance(index[0], int):
            part = nested.unbind()[index[0]]
            return part[index[1:]] if index[1:] else part
    if name in ("backward", "register_hook", "retain_grad", "data_ptr", "untyped_storage", "storage_offset", "is_floating_point",
                "is_complex", "element_size", "get_device", "is_pinned"):  # fmt: skip
        given = [x.buffer() if isinstance(x, StridedNestedTensor) else x for x in args]  # the seed of backward too
        named = {key: x.buffer() if isinstance(x, StridedNestedTensor) else x for key, x in kwargs.items()}
        return func(*given, **named)
    if name in ("softmax", "log_softmax") and not len(nested):
        return nested
    if name in _DIMS or name in _BY_PART:
        args, kwargs = list(args), dict(kwargs)
        for place, key in _DIMS.get(name, ()):
            if place < len(args):
                args[place] = _below(args[place], nested, name)
            elif key in kwargs:
                kwargs[key] = _below(kwargs[key], nested, name)
            elif name in ("chunk", "split", "split_with_sizes"):
                raise RuntimeError(f"{name}: along the first dimension of a nested tensor, use unbind()")
        return _as_parts(mica.matmul if name == "bmm" else func, args, kwargs, nested)
    raise NotImplementedError(
        f"torch.{name} is not implemented for nested tensors of the strided layout; the jagged layout has more, and "
        "unbind() gives the parts"
    )
