"""Sequences of different lengths: packed one time step after another, or padded to the longest."""

from collections.abc import Iterable
from typing import NamedTuple

import mica
from mica import _C
from mica._C import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class PackedSequence_(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


def bind(optional, fn):
    return None if optional is None else fn(optional)


class PackedSequence(PackedSequence_):
    """The steps of sequences sorted by length, without padding, and how many sequences still run in every step."""

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
                "They should be instantiated by functions like pack_sequence and pack_padded_sequences in nn.utils.rnn."
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def pin_memory(self):
        pinned = [bind(t, lambda t: t.pin_memory()) for t in (self.data, self.sorted_indices, self.unsorted_indices)]
        return type(self)(pinned[0], self.batch_sizes, *pinned[1:])

    def to(self, *args, **kwargs):
        """The data converted or moved, as Tensor.to does; indices move along, but keep their dtype."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        indices = [bind(t, lambda t: t.to(data.device)) for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *indices)

    def _to_device(self, device, args, kwargs):
        target = mica.tensor((), dtype=self.data.dtype, device=self.data.device).to(*args, **kwargs)
        if target.device.type != device:
            kwargs["device"] = device
        return self.to(*args, **kwargs)

    def cuda(self, *args, **kwargs):
        return self._to_device("cuda", args, kwargs)

    def cpu(self, *args, **kwargs):
        return self._to_device("cpu", args, kwargs)

    def double(self):
        return self.to(dtype=mica.float64)

    def float(self):
        return self.to(dtype=mica.float32)

    def half(self):
        return self.to(dtype=mica.float16)

    def long(self):
        return self.to(dtype=mica.int64)

    def int(self):
        return self.to(dtype=mica.int32)

    def short(self):
        return self.to(dtype=mica.int16)

    def char(self):
        return self.to(dtype=mica.int8)

    def byte(self):
        return self.to(dtype=mica.uint8)

    @property
    def is_cuda(self):
        return self.data.is_cuda

    def is_pinned(self):
        return self.data.is_pinned()


def invert_permutation(permutation):
    """The order that undoes another; None for None."""
    if permutation is None:
        return None
    places = mica.arange(0, permutation.numel(), device=permutation.device)
    return mica.empty_like(permutation, memory_format=mica.contiguous_format).scatter_(0, permutation, places)


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Padded sequences, packed. Without `enforce_sorted` they may come in any order of lengths."""
    if isinstance(lengths, Tensor):
        lengths = lengths.to(dtype=mica.int64)
    else:
        lengths = mica.as_tensor(lengths, dtype=mica.int64, device="cpu")
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = mica.sort(lengths, descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    data, batch_sizes = _C._pack_padded_sequence(input, lengths, batch_first)
    return PackedSequence(data, batch_sizes, sorted_indices, None)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """Packed sequences, padded to the longest or to `total_length`, in the order they had; and their lengths."""
    longest = sequence.batch_sizes.size(0)
    if total_length is not None:
        if total_length < longest:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {longest}"
            )
        longest = total_length
    padded, lengths = _C._pad_packed_sequence(sequence.data, sequence.batch_sizes, batch_first, padding_value, longest)
    order = sequence.unsorted_indices
    if order is None:
        return padded, lengths
    return padded.index_select(0 if batch_first else 1, order), lengths[order.cpu()]


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Sequences in one tensor, the shorter ones filled up with a value at one side."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    return _C._pad_sequence(tuple(sequences), batch_first, padding_value, padding_side)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """The sequences of a padded tensor, each with its own length and memory."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    if len(rows) != len(lengths):
        raise ValueError(f"unpad_sequence: got {len(rows)} sequences but {len(lengths)} lengths")
    return [
        row[: int(length)].clone(memory_format=mica.contiguous_format)
        for row, length in zip(rows, lengths, strict=True)
    ]


def pack_sequence(sequences, enforce_sorted=True):
    """A list of sequences, packed."""
    lengths = mica.as_tensor([sequence.size(0) for sequence in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """The list of sequences that was packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
