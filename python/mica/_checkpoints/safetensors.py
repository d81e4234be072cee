"""Reads and writes safetensors files: a JSON header of names, dtypes, shapes and places, then the tensors' bytes."""

import json
import os

from mica import _C

DTYPES = {
    "F64": _C.float64,
    "F32": _C.float32,
    "F16": _C.float16,
    "BF16": _C.bfloat16,
    "F8_E4M3": _C.float8_e4m3fn,
    "F8_E5M2": _C.float8_e5m2,
    "F8_E8M0": _C.float8_e8m0fnu,
    "F4": _C.float4_e2m1fn_x2,
    "I64": _C.int64,
    "I32": _C.int32,
    "I16": _C.int16,
    "I8": _C.int8,
    "U64": _C.uint64,
    "U32": _C.uint32,
    "U16": _C.uint16,
    "U8": _C.uint8,
    "BOOL": _C.bool,
    "C64": _C.complex64,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def shape_of(entry):
    """The sizes of the tensor of an entry. The file counts 4-bit numbers, a tensor counts bytes."""
    sizes = list(entry["shape"])
    if DTYPES[entry["dtype"]] == _C.float4_e2m1fn_x2:
        if not sizes or sizes[-1] % 2:
            raise ValueError(f"4-bit numbers of the sizes {sizes} do not fill whole bytes")
        sizes[-1] //= 2
    return sizes


def read_header(path):
    """The header of a file: entries of dtype, shape and place by the tensors' names, and its notes (`__metadata__`)."""
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > os.path.getsize(path):
                raise ValueError("its header ends beyond it")
            return json.loads(file.read(size))
    except ValueError as error:
        raise RuntimeError(f"{path} is not a safetensors file, or damaged: {error}") from error


def write_safetensors(path, tensors, notes=None):
    """Write tensors of the CPU without gaps by their names, the largest elements first so that all are aligned."""
    header, place = {} if notes is None else {"__metadata__": notes}, 0
    order = sorted(tensors.items(), key=lambda pair: (-pair[1].dtype.itemsize, pair[0]))
    for name, tensor in order:
        if tensor.dtype not in _NAMES or tensor.layout is not _C.strided:
            raise RuntimeError(f"safetensors files hold no tensors of {tensor.dtype} and {tensor.layout}: {name!r}")
        shape = list(tensor.shape)
        if tensor.dtype == _C.float4_e2m1fn_x2:
            shape[-1] *= 2
        header[name] = {
            "dtype": _NAMES[tensor.dtype], "shape": shape, "data_offsets": [place, place + tensor.nbytes],
        }  # fmt: skip
        place += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    draft = f"{path}.{os.getpid()}.part"
    with open(draft, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in order:
            file.write(memoryview(tensor.contiguous().flatten().view(_C.uint8).numpy()))
    os.replace(draft, path)


def load_safetensors(path, device):
    """The tensors of the file by name, on the device; on the CPU their bytes are read from the file when they are used."""
    size = os.path.getsize(path)
    mapped = _C.UntypedStorage.from_file(path, False, size)
    try:
        begin = 8 + int.from_bytes(bytes(mapped._part(0, 8)), "little")
        header = json.loads(bytes(mapped._part(8, begin)))
        tensors = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            first, last = entry["data_offsets"]
            dtype = DTYPES[entry["dtype"]]
            part = mapped._part(begin + first, begin + last)
            if (begin + first) % dtype.itemsize:
                part = part.clone()
            sizes = shape_of(entry)
            strides = [1] * len(sizes)
            for d in range(len(sizes) - 2, -1, -1):
                strides[d] = strides[d + 1] * max(sizes[d + 1], 1)
            tensors[name] = _C._view_storage(part, dtype, 0, sizes, strides).to(device)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
        raise RuntimeError(f"{path} ({size} bytes) is not a safetensors file, or damaged: {error}") from error
    return tensors
