"""Reads GGUF files: keys with values, names with types, shapes and places, then the tensors' bytes."""

import math
import mmap
import os
import struct

from mica import _C
from mica._checkpoints.block_weight import BlockWeight, gather

__all__ = ["GGUFFile", "load_gguf"]

PLAIN = {
    0: _C.float32,
    1: _C.float16,
    24: _C.int8,
    25: _C.int16,
    26: _C.int32,
    27: _C.int64,
    28: _C.float64,
    30: _C.bfloat16,
}
BLOCKS = {2: ("Q4_0", 32, 18), 8: ("Q8_0", 32, 34), 12: ("Q4_K", 256, 144), 14: ("Q6_K", 256, 210)}
# Types that other programs write and Mica does not read yet, so that an error can name them.
OTHERS = {3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 10: "Q2_K", 11: "Q3_K", 13: "Q5_K", 16: "IQ2_XXS", 20: "IQ4_NL", 39: "MXFP4"}
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
MOST_DIMS, DEEPEST = 4, 4


class GGUFFile(dict):
    """The tensors of a file by name; `metadata` has its keys and values."""

    def __init__(self, metadata):
        super().__init__()
        self.metadata = metadata


class _Header:
    """Numbers, texts and lists, one after the other. Never makes an object that is larger than the rest of the file."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if count > len(self.data) - self.at:
            raise ValueError(f"{count} bytes are missing at {self.at}")
        self.at += count
        return self.at - count

    def number(self, form):
        return struct.unpack_from("<" + form, self.data, self.take(struct.calcsize("<" + form)))[0]

    def text(self, errors="strict"):
        length = self.number("Q")
        first = self.take(length)
        return self.data[first : first + length].decode("utf-8", errors)

    def value(self, kind, depth=0):
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.text("surrogateescape")  # words of a vocabulary may hold incomplete letters
        if kind != ARRAY or depth > DEEPEST:
            raise ValueError(f"a value of type {kind} within {depth} lists")
        inner, count = self.number("I"), self.number("Q")
        if inner in SCALARS:
            form = SCALARS[inner]
            first = self.take(count * struct.calcsize("<" + form))
            return list(struct.unpack_from(f"<{count}{form}", self.data, first))
        if count * 8 > len(self.data) - self.at:
            raise ValueError(f"a list of {count} values is longer than the file")
        return [self.value(inner, depth + 1) for _ in range(count)]


def _read_header(data):
    header = _Header(data)
    if data[header.take(4) : 4] != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    version = header.number("I")
    if version not in (2, 3):
        raise ValueError(f"version {version} is none of 2 and 3, in little-endian order")
    tensors, keys = header.number("Q"), header.number("Q")
    metadata, entries = {}, {}
    for _ in range(keys):
        key = header.text()
        if key in metadata:
            raise ValueError(f"the key {key!r} comes twice")
        metadata[key] = header.value(header.number("I"))
    for _ in range(tensors):
        name, dims = header.text(), header.number("I")
        if name in entries:
            raise ValueError(f"the tensor {name!r} comes twice")
        if dims > MOST_DIMS:
            raise ValueError(f"{name!r} has {dims} dimensions, and a file allows {MOST_DIMS}")
        shape = tuple(header.number("Q") for _ in range(dims))[::-1]
        entries[name] = shape, header.number("I"), header.number("Q")
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise ValueError(f"general.alignment is {alignment!r}, no power of two up to {1 << 20}")
    return metadata, entries, -(-header.at // alignment) * alignment


def _read_tensor(mapped, size, begin, name, shape, kind):
    count = math.prod(shape)
    if kind in BLOCKS:
        type_name, numbers, nbytes = BLOCKS[kind]
        if not shape or not count or shape[-1] % numbers:
            raise ValueError(
                f"{name!r} of type {type_name} has the shape {shape}, whose rows are no blocks of {numbers}"
            )
        total = count // numbers * nbytes
    elif kind in PLAIN:
        total = count * PLAIN[kind].itemsize
    else:
        raise ValueError(f"{name!r} has the type {OTHERS.get(kind, kind)}, which Mica does not read")
    if begin + total > size:
        raise ValueError(f"the bytes of {name!r}, {begin} to {begin + total}, lie outside of the file")
    part = mapped._part(begin, begin + total)
    if kind in BLOCKS:
        return BlockWeight(type_name, _C._view_storage(part, _C.uint8, 0, [total], [1]), shape)
    if begin % PLAIN[kind].itemsize:
        part = part.clone()
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    return _C._view_storage(part, PLAIN[kind], 0, list(shape), strides)


def load_gguf(path):
    """The tensors of a GGUF file by name, with its keys as `metadata`.

    Numbers of 16 bits and more become tensors, whose bytes are read from the file when they are used. Weights in the
    blocks Q4_0, Q8_0, Q4_K and Q6_K become `BlockWeight`: they stay as small as they are and are multiplied with.
    Shapes are in the order of torch, the last dimension adjacent. No file can run code; a damaged one is refused.
    """
    path = os.fspath(path)
    size = os.path.getsize(path)
    try:
        with open(path, "rb") as file:
            if not size:
                raise ValueError("it is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                metadata, entries, begin = _read_header(data)
        result, mapped = GGUFFile(metadata), _C.UntypedStorage.from_file(path, False, size)
        for name, (shape, kind, offset) in entries.items():
            result[name] = _read_tensor(mapped, size, begin + offset, name, shape, kind)
        gather([weight for weight in result.values() if isinstance(weight, BlockWeight)])
    except (ValueError, OverflowError, RuntimeError, struct.error) as error:
        raise RuntimeError(f"{path} ({size} bytes) is not a GGUF file that can be read, or damaged: {error}") from error
    return result
