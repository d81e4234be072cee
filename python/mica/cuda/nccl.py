"""Sums and copies between the GPUs of one process, by NVIDIA's NCCL, which is opened when first needed."""

import collections.abc
import contextlib
import ctypes
import functools
import glob
import importlib.util
import os
import warnings

from mica import _C

__all__ = ["all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter"]

SUM = 0  # then the product, the maximum, the minimum and the mean
_DTYPES = {
    _C.int8: 0, _C.uint8: 1, _C.bool: 1, _C.int32: 2, _C.uint32: 3, _C.int64: 4, _C.uint64: 5, _C.float16: 6,
    _C.float32: 7, _C.float64: 8, _C.bfloat16: 9,
}  # fmt: skip


class _UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


@functools.cache
def _library():
    """NCCL; None where it is not installed."""
    names = ["libnccl.so.2"]
    with contextlib.suppress(ModuleNotFoundError):
        spec = importlib.util.find_spec("nvidia.nccl")  # the package nvidia-nccl-cu13
        for folder in spec.submodule_search_locations or () if spec else ():
            names += glob.glob(os.path.join(folder, "lib", "libnccl.so*"))
    for name in names:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _nccl():
    library = _library()
    if library is None:
        raise RuntimeError("NCCL is not installed: pip install nvidia-nccl-cu13")
    return library


def _call(function, *arguments):
    library = _nccl()
    status = getattr(library, function)(*arguments)
    if status:
        library.ncclGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"NCCL Error {status}: {library.ncclGetErrorString(status).decode()} in {function}")


def is_available(tensors):
    """Whether NCCL is there and takes these tensors: dense ones, each on a GPU of its own."""
    if _library() is None:
        warnings.warn("NCCL is not installed: pip install nvidia-nccl-cu13", stacklevel=2)
        return False
    devices = [tensor.device for tensor in tensors if tensor.is_cuda and tensor.layout is _C.strided]
    takes = len(devices) == len(tensors) == len(set(devices))
    return takes and all(tensor.is_contiguous() for tensor in tensors)


def version():
    """NCCL's version: (major, minor, patch)."""
    code = ctypes.c_int()
    _call("ncclGetVersion", ctypes.byref(code))
    if code.value < 10000:  # as NCCL counted before 2.9
        return code.value // 1000, code.value // 100 % 10, code.value % 100
    return code.value // 10000, code.value // 100 % 100, code.value % 100


def unique_id():
    """The bytes by which the ranks of a communicator find each other."""
    name = _UniqueId()
    _call("ncclGetUniqueId", ctypes.byref(name))
    return bytes(name)


def init_rank(num_ranks, uid, rank):
    """The communicator of one rank; waits until all have called this."""
    communicator = ctypes.c_void_p()
    name = _UniqueId.from_buffer_copy(uid)
    _call("ncclCommInitRank", ctypes.byref(communicator), ctypes.c_int(num_ranks), name, ctypes.c_int(rank))
    return communicator


@functools.cache
def _communicators(indices):
    """One communicator for each of the GPUs; they live as long as the process."""
    made = (ctypes.c_void_p * len(indices))()
    _call("ncclCommInitAll", made, ctypes.c_int(len(indices)), (ctypes.c_int * len(indices))(*indices))
    return [ctypes.c_void_p(each) for each in made]


def _check_sequence_type(inputs):
    if not isinstance(inputs, collections.abc.Container) or isinstance(inputs, _C.Tensor):
        raise TypeError("Inputs should be a collection of tensors")


def _check(inputs, outputs, input_times=1, output_times=1):
    """All inputs have one dtype and length, the outputs a multiple of it, each pair is on a GPU of its own."""
    if not inputs or len(inputs) != len(outputs):
        raise RuntimeError(f"expected as many outputs as inputs, got {len(outputs)} and {len(inputs)}")
    first, devices = inputs[0], set()
    for tensor, out in zip(inputs, outputs, strict=True):
        for each in (tensor,) if out is None else (tensor, out):
            if not each.is_cuda or each.layout is not _C.strided or not each.is_contiguous():
                raise RuntimeError("inputs and outputs must be dense, contiguous CUDA tensors")
            if each.dtype is not first.dtype or each.device != tensor.device:
                raise RuntimeError("all inputs and outputs must have one dtype, and each output its input's device")
        if tensor.numel() != first.numel():
            raise RuntimeError("all inputs must have the same number of elements")
        if out is not None and out.numel() * output_times != tensor.numel() * input_times:
            raise RuntimeError(f"output of invalid size: {tuple(out.shape)} for an input of {tuple(tensor.shape)}")
        if tensor.device in devices:
            raise RuntimeError("inputs must be on unique devices")
        devices.add(tensor.device)
    if first.dtype not in _DTYPES:
        raise TypeError(f"Unconvertible NCCL type {first.dtype}")


def _together(inputs, streams, comms, call):
    """call(number, communicator, stream) for each GPU, as one operation of NCCL's."""
    from mica.cuda import current_stream, device

    if comms is None:
        comms = _communicators(tuple(tensor.get_device() for tensor in inputs))
    _call("ncclGroupStart")
    try:
        for number, tensor in enumerate(inputs):
            stream = streams[number] if streams is not None and streams[number] is not None else None
            with device(tensor.get_device()):
                handle = (stream or current_stream(tensor.device)).cuda_stream
                call(number, comms[number], ctypes.c_void_p(handle))
    finally:
        _call("ncclGroupEnd")


def _address(tensor):
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _count_and_dtype(tensor):
    return ctypes.c_size_t(tensor.numel()), ctypes.c_int(_DTYPES[tensor.dtype])


def all_reduce(inputs, outputs=None, op=SUM, streams=None, comms=None):
    """The sum of all inputs into every output; into the inputs where no outputs are given."""
    _check_sequence_type(inputs)
    outputs = inputs if outputs is None else outputs
    _check_sequence_type(outputs)
    _check(inputs, outputs)

    def call(i, communicator, stream):
        both = _address(inputs[i]), _address(outputs[i])
        _call("ncclAllReduce", *both, *_count_and_dtype(inputs[i]), ctypes.c_int(op), communicator, stream)

    _together(inputs, streams, comms, call)


def reduce(inputs, output=None, root=0, op=SUM, streams=None, comms=None, *, outputs=None):
    """The sum of all inputs into one output, on the GPU of input `root`."""
    _check_sequence_type(inputs)
    if outputs is not None and output is not None:
        raise ValueError("'output' and 'outputs' can not be both specified: 'outputs' is deprecated")
    many = output if isinstance(output, collections.abc.Sequence) else outputs
    if many is not None:
        warnings.warn(
            "`nccl.reduce` with an output tensor list is deprecated. Please specify a single output tensor with argument "
            "'output' instead.",
            FutureWarning,
            stacklevel=2,
        )
        output = many[root]
    output = inputs[root] if output is None else output
    targets = [output if i == root else None for i in range(len(inputs))]
    _check(inputs, targets)

    def call(i, communicator, stream):
        both = _address(inputs[i]), _address(targets[i])
        rest = (ctypes.c_int(op), ctypes.c_int(root), communicator, stream)
        _call("ncclReduce", *both, *_count_and_dtype(inputs[i]), *rest)

    _together(inputs, streams, comms, call)


def broadcast(inputs, root=0, streams=None, comms=None):
    """Copy input `root` to all others."""
    _check_sequence_type(inputs)
    _check(inputs, inputs)

    def call(i, communicator, stream):
        both = _address(inputs[i]), _address(inputs[i])
        _call("ncclBroadcast", *both, *_count_and_dtype(inputs[i]), ctypes.c_int(root), communicator, stream)

    _together(inputs, streams, comms, call)


def all_gather(inputs, outputs, streams=None, comms=None):
    """All inputs one after another into every output."""
    _check_sequence_type(inputs)
    _check_sequence_type(outputs)
    _check(inputs, outputs, input_times=len(inputs))

    def call(i, communicator, stream):
        both = _address(inputs[i]), _address(outputs[i])
        _call("ncclAllGather", *both, *_count_and_dtype(inputs[i]), communicator, stream)

    _together(inputs, streams, comms, call)


def reduce_scatter(inputs, outputs, op=SUM, streams=None, comms=None):
    """The sum of all inputs, of which each output gets its part."""
    _check_sequence_type(inputs)
    _check_sequence_type(outputs)
    _check(inputs, outputs, output_times=len(inputs))

    def call(i, communicator, stream):
        both = _address(inputs[i]), _address(outputs[i])
        _call("ncclReduceScatter", *both, *_count_and_dtype(outputs[i]), ctypes.c_int(op), communicator, stream)

    _together(inputs, streams, comms, call)
