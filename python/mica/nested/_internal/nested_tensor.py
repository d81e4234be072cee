"""The jagged tensor: values in a row, and where each sequence begins."""

import itertools
import types

import mica
from mica import _C, _utils

__all__ = ["NestedTensor", "jagged_from_list", "jagged_of_parts", "jagged_view"]

_numbers = itertools.count(1)


class NestedInt(mica.SymInt):
    """A size that differs from sequence to sequence: j1, j2, ... It equals itself alone."""

    __slots__ = ("number",)

    def __init__(self):
        self.number = next(_numbers)

    @property
    def node(self):
        raise RuntimeError(
            f"{self!r} is a size that differs from sequence to sequence: it is no number to compute with"
        )

    def __repr__(self):
        return f"j{self.number}"

    __str__ = __repr__

    def __format__(self, how):
        return format(repr(self), how)

    def __eq__(self, other):
        return isinstance(other, NestedInt) and self.number == other.number

    def __hash__(self):
        return hash(("nested", self.number))

    def __gt__(self, other):
        return isinstance(other, int) and other <= 1

    def __ge__(self, other):
        return isinstance(other, int) and other <= 2

    def __ne__(self, other):
        return not self == other

    def __lt__(self, other):
        return False if isinstance(other, int) and other <= 2 else NotImplemented

    def __le__(self, other):
        return False if isinstance(other, int) and other <= 1 else NotImplemented


class NestedSize(tuple):
    """A size with a nested one in it."""

    __slots__ = ()

    def __repr__(self):
        return f"torch.Size([{', '.join(map(repr, self))}])"

    def __getitem__(self, index):
        found = tuple.__getitem__(self, index)
        return NestedSize(found) if isinstance(index, slice) else found


_known = {}  # offsets by their place in memory: the same offsets are the same length


def _length_of(offsets):
    """The nested size that offsets stand for."""
    key = id(offsets)
    known = _known.get(key)
    if known is None or known[0]() is not offsets:
        import weakref

        known = _known[key] = (weakref.ref(offsets, lambda _: _known.pop(key, None)), NestedInt())
    return known[1]


def jagged_view(values, offsets, lengths=None, ragged=1, known=None):
    """Values as a nested tensor: a view, in the same graph. `known` has the bounds of the lengths that are known already."""
    if offsets.dim() != 1 or offsets.is_floating_point():
        raise RuntimeError("nested tensor: expected offsets to be a 1-D tensor of integers")
    if not 1 <= ragged <= values.dim():
        raise ValueError(f"Expected jagged_dim to lie in [1, {values.dim()}], but got {ragged}.")
    with _C.DisableTorchFunctionSubclass():
        made = values.as_subclass(NestedTensor)
    made._offsets, made._lengths, made._ragged = offsets, lengths, ragged
    made._metadata_cache = {key: value for key, value in (known or {}).items() if value is not None}
    return made


def nested_view_from_values_offsets(values, offsets, ragged_idx=1, min_seqlen=None, max_seqlen=None):
    """Values whose sequences begin at offsets, as a nested tensor: a view."""
    return jagged_view(values, offsets, None, ragged_idx, {"min_seqlen": min_seqlen, "max_seqlen": max_seqlen})


def nested_view_from_values_offsets_lengths(values, offsets, lengths, ragged_idx=1, min_seqlen=None, max_seqlen=None):
    """A nested tensor with gaps: sequences begin at `offsets`, and have these `lengths`."""
    return jagged_view(values, offsets, lengths, ragged_idx, {"min_seqlen": min_seqlen, "max_seqlen": max_seqlen})


def nested_from_padded(padded, offsets, ragged_idx=1, min_seqlen=None, max_seqlen=None, sum_S=None):
    """The rows of a padded tensor without their padding, in the same graph."""
    if ragged_idx != 1:
        raise RuntimeError("nested_from_padded(): only ragged_idx=1 supported for jagged layout")
    places = _C.arange(padded.shape[1], device=offsets.device)
    values = padded[places < offsets.diff().unsqueeze(1)]
    if values.shape[0] != offsets[-1].item():
        raise RuntimeError("nested_from_padded(): offsets name sequences that are longer than the rows of the tensor")
    return nested_view_from_values_offsets(values, offsets, ragged_idx, min_seqlen, max_seqlen)


def jagged_from_list(tensors, offsets, dtype=None, device=None):
    """torch's private maker: (the nested tensor of sequences, its offsets). Those that are given say which length it is."""
    made = jagged_of_parts(list(tensors), dtype, device, offsets)
    return made, made.offsets()


def jagged_of_parts(parts, dtype=None, device=None, offsets=None):
    """Sequences one after the other; they differ in one dimension at most."""
    if not parts:
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    first = parts[0]
    if any(p.dtype != first.dtype for p in parts) or any(p.device != first.device for p in parts):
        raise RuntimeError("When constructing a nested tensor, all tensors in list must have the same dtype and device")
    if any(p.dim() != first.dim() for p in parts):
        raise RuntimeError("When constructing a nested tensor, all tensors in list must have the same dim")
    if first.dim() == 0:
        raise RuntimeError("Cannot construct a nested tensor from a list of zero-dim tensors")
    differing = [d for d in range(first.dim()) if any(p.shape[d] != first.shape[d] for p in parts)] or [0]
    if len(differing) > 1:
        raise RuntimeError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout. Note that the jagged layout "
            "only allows for a single ragged dimension. For example: (B, *, D_0, D_1, ..., D_N), with ragged * dim."
        )
    ragged = differing[0] + 1
    values = mica.cat(parts, differing[0])
    values = values.to(device=device or values.device, dtype=dtype or values.dtype)
    lengths = [p.shape[differing[0]] for p in parts]
    if offsets is None:
        offsets = mica.tensor([0, *lengths], device=values.device).cumsum(0)
    return jagged_view(values, offsets, None, ragged, {"min_seqlen": min(lengths), "max_seqlen": max(lengths)})


_answers = []  # the functions of ops.py, which imports this file


def answer_with(call):
    """Let a function answer for torch's functions of nested tensors."""
    _answers[:] = [call]


class NestedTensor(mica.Tensor):
    """Sequences of different lengths as one tensor of shape (batch, ..., j, ...).

    The tensor itself is the values of all sequences, so that autograd treats it like any other.
    """

    _values_are_plain = True  # for Tensor's methods that return a value

    def __new__(cls, values, offsets, *, lengths=None, _ragged_idx=1, _metadata_cache=None, **kwargs):
        if kwargs:
            raise TypeError(f"NestedTensor() got an unexpected keyword argument {next(iter(kwargs))!r}")
        return jagged_view(values.detach(), offsets, lengths, _ragged_idx, _metadata_cache)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return _answers[0](func, args, kwargs or {})

    is_nested = True

    def values(self):
        """The values of all sequences, a plain tensor in the same graph."""
        with _C.DisableTorchFunctionSubclass():
            return self.as_subclass(mica.Tensor)

    def offsets(self):
        """Where each sequence begins, and where the last ends."""
        return self._offsets

    def lengths(self):
        """The lengths of the sequences, where there are gaps between them; else None."""
        return self._lengths

    @property
    def _values(self):
        return self.values()

    @property
    def _ragged_idx(self):
        return self._ragged

    _metadata_cache = types.MappingProxyType({})  # the bounds of the lengths, once they are known
    _min_seqlen_tensor = _max_seqlen_tensor = None

    def _bound(self, key, choose):
        if key not in self._metadata_cache:
            self._metadata_cache = {
                **self._metadata_cache,
                key: choose((length for _, length in self._spans()), default=0),
            }
        return self._metadata_cache[key]

    @property
    def _min_seqlen(self):
        return self._bound("min_seqlen", min)

    @property
    def _max_seqlen(self):
        return self._bound("max_seqlen", max)

    def _view_func(self, base):
        """The same view of another base."""
        values = self.values()
        again = base.as_strided(values.shape, values.stride(), values.storage_offset())
        return self._rewrapped(again)

    def _owners(self):
        """The number of the sequence that each place of the values belongs to; gaps belong to the one before them."""
        places = _C.arange(self.values().shape[self._ragged - 1], device=self._offsets.device)
        return (_C.searchsorted(self._offsets, places, right=True) - 1).clamp_(0, len(self) - 1)

    def _each_length(self):
        return self._offsets.diff() if self._lengths is None else self._lengths

    def _spans(self):
        begins = self._offsets[:-1].tolist()
        return list(zip(begins, self._each_length().tolist(), strict=True))

    def _rewrapped(self, values, ragged=None):
        ragged = self._ragged if ragged is None else ragged
        return jagged_view(values, self._offsets, self._lengths, ragged, self._metadata_cache)

    # Methods that Tensor answers without asking __torch_function__.
    def dim(self):
        return self.values().dim() + 1

    ndimension = dim

    def numel(self):
        rest = 1
        for i, size in enumerate(self.values().shape):
            rest *= 1 if i == self._ragged - 1 else size
        return sum(n for _, n in self._spans()) * rest

    nelement = numel

    def __len__(self):
        return self._offsets.shape[0] - 1

    def _sizes(self):
        sizes = list(self.values().shape)
        sizes[self._ragged - 1] = _length_of(self._offsets)
        return NestedSize((len(self), *sizes))

    def unbind(self, dim=0):
        """The sequences: views of the values."""
        if dim != 0:
            raise RuntimeError("unbind(): only supported for NestedTensor on dim=0")
        values = self.values()
        if any(begin + length > values.shape[self._ragged - 1] for begin, length in self._spans()):
            raise RuntimeError("unbind(): nested tensor offsets and lengths do not match ragged_idx dimension")
        return tuple(values.narrow(self._ragged - 1, begin, length) for begin, length in self._spans())

    def to_padded_tensor(self, padding, output_size=None):
        """The sequences as rows of a plain tensor, with a number after their ends."""
        parts = self.unbind()
        at = self._ragged - 1
        wanted = max((p.shape[at] for p in parts), default=0)
        shape = list(self.values().shape)
        shape[at] = wanted
        if output_size is not None:
            if len(output_size) != self.dim() or any(
                have > want for have, want in zip(shape, output_size[1:], strict=True)
            ):
                raise RuntimeError(
                    "to_padded_tensor: the value in output_size cannot be smaller than the nested tensor in that "
                    f"dimension: got {tuple(output_size)} for {self._sizes()!r}"
                )
            shape = list(output_size[1:])
        rows = []
        for part in parts:
            pads = []
            for have, want in zip(reversed(part.shape), reversed(shape), strict=True):
                pads += [0, want - have]
            rows.append(mica.nn.functional.pad(part, pads, value=padding))
        return mica.stack(rows) if rows else self.values().new_zeros((0, *shape))

    def item(self):
        raise RuntimeError("a nested tensor has no single value: see values() and unbind()")

    tolist = numpy = __array__ = __float__ = __int__ = __bool__ = item

    def __repr__(self, *, tensor_contents=None):
        extra = ", requires_grad=True" if self.requires_grad and self.is_leaf else ""
        if not self.is_leaf:
            extra = f", grad_fn={self.values().grad_fn}"
        sizes = ", ".join(map(repr, self._sizes()))
        whole = self._lengths is None and self.values().is_contiguous()
        return f"NestedTensor(size=({sizes}), offsets={self._offsets}{extra}, contiguous={whole})"

    def __reduce_ex__(self, protocol):
        parts = {
            "values": self.values().detach(),
            "offsets": self._offsets,
            "lengths": self._lengths,
            "_ragged_idx": self._ragged,
            # torch keeps a bound as the size of a tensor without elements, and marks that tensor when it loads it.
            "_metadata_cache": {key: mica.zeros(bound, 0) for key, bound in self._metadata_cache.items()},
            "requires_grad": self.requires_grad,
        }
        return _utils._rebuild_from_type_v2, (_rebuild_njt, type(self), (parts,), {})

    def __setstate__(self, state):
        """A file of torch's has the parts here a second time, and what its compiler noted about them."""

    def __deepcopy__(self, memo):
        made = self._rewrapped(self.values().detach().clone())
        return made.requires_grad_() if self.requires_grad else made


def _rebuild_njt(constructor_kwargs):
    """The jagged tensor of a file."""
    given = constructor_kwargs
    bounds = (given.get("_metadata_cache") or {}).items()
    known = {key: len(value) for key, value in bounds if isinstance(value, mica.Tensor) and value.dim() == 2}
    known |= {key: value for key, value in bounds if isinstance(value, int)}  # the form of older files
    made = jagged_view(given["values"].detach(), given["offsets"], given["lengths"], given["_ragged_idx"], known)
    return made.requires_grad_() if given["requires_grad"] else made
