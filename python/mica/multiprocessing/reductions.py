"""How tensors go from process to process: their memory is shared, and what names it is sent.

The memory of CPU tensors moves to a file in memory, of which the descriptor is sent; that of GPUs is named by a handle
(_device_sharing.py). Sparse and nested tensors are sent as the tensors that they consist of.
"""

import os
from multiprocessing import reduction
from multiprocessing.reduction import DupFd, ForkingPickler

from mica import _C
from mica.multiprocessing._storage_cache import SharedCache, StorageWeakRef, shared_cache, storage_from_cache
from mica.nn.parameter import Parameter
from mica.storage import TypedStorage, UntypedStorage


def fd_id(fd):
    """What tells files apart that descriptors name."""
    status = os.fstat(fd)
    return status.st_ino, status.st_dev


# ---- storages. `cls` is in torch's signatures; a storage that comes is always an UntypedStorage.


def rebuild_storage_fd(cls, df, size):
    fd = df.detach()
    try:
        key = (*fd_id(fd), size)
        storage = storage_from_cache(cls, key)
        if storage is None:
            storage = UntypedStorage._new_shared_fd_cpu(fd, size)
            shared_cache[key] = StorageWeakRef(storage)
        return storage
    finally:
        os.close(fd)


def rebuild_storage_empty(cls, nbytes=0, device="cpu"):
    return UntypedStorage(nbytes, device=device)


def reduce_storage(storage):
    if storage.device.type == "meta" or len(storage) == 0:
        return rebuild_storage_empty, (None, len(storage), storage.device.type)
    if storage.device.type != "cpu":
        raise RuntimeError(
            f"Cannot pickle {storage.device.type.upper()} storage; try pickling a {storage.device.type.upper()} tensor instead"
        )
    fd, nbytes = storage._share_fd_cpu_()
    return rebuild_storage_fd, (None, DupFd(fd), nbytes)


def rebuild_typed_storage(storage, dtype):
    return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def reduce_typed_storage(storage):
    return rebuild_typed_storage, (storage._untyped_storage, storage.dtype)


def rebuild_typed_storage_child(storage, storage_type):
    return storage_type(wrap_storage=storage, _internal=True)


def reduce_typed_storage_child(storage):
    return rebuild_typed_storage_child, (storage._untyped_storage, type(storage))


# ---- tensors


def _as_class(cls, tensor, requires_grad):
    return Parameter(tensor, requires_grad) if cls is Parameter else tensor.requires_grad_(requires_grad)


def rebuild_tensor(cls, storage, metadata):
    dtype, offset, size, stride, requires_grad = metadata
    return _as_class(cls, _C._view_storage(storage, dtype, offset, size, stride), requires_grad)


def rebuild_meta_tensor(
    tensor_cls, tensor_size, tensor_stride, tensor_offset, dtype, storage_size_bytes, requires_grad
):
    storage = UntypedStorage(storage_size_bytes, device="meta")
    metadata = (dtype, tensor_offset, tensor_size, tensor_stride, requires_grad)
    return rebuild_tensor(tensor_cls, storage, metadata)


def rebuild_cuda_tensor(cls, shared, metadata):
    from mica.multiprocessing import _device_sharing

    return rebuild_tensor(cls, _device_sharing.receive(shared), metadata)


_SPARSE = (_C.sparse_coo, _C.sparse_csr, _C.sparse_csc, _C.sparse_bsr, _C.sparse_bsc)


def reduce_tensor(tensor):
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing "
            "process boundaries.  If you just want to transfer the data, call detach() on the tensor before serializing "
            "(e.g., putting it on the queue)."
        )
    if tensor.layout in _SPARSE:
        return reduce_sparse_tensor(tensor)
    if tensor.is_nested and tensor.layout is _C.strided:
        return reduce_nested_tensor(tensor)
    if tensor.is_conj() or tensor.is_neg() or tensor.is_quantized or tensor.is_nested or tensor.__dict__:
        return tensor.__reduce_ex__(4)  # its storage is shared all the same
    cls = Parameter if type(tensor) is Parameter else None
    place = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
    storage = tensor.untyped_storage()
    if tensor.is_meta:
        offset, size, stride = place
        return rebuild_meta_tensor, (cls, size, stride, offset, tensor.dtype, len(storage), tensor.requires_grad)
    metadata = (tensor.dtype, *place, tensor.requires_grad)
    if tensor.is_cpu or len(storage) == 0:
        return rebuild_tensor, (cls, storage, metadata)
    from mica.multiprocessing import _device_sharing

    return rebuild_cuda_tensor, (cls, _device_sharing.share(storage), metadata)


def _parts(*tensors):
    """What rebuilds each tensor, one after another."""
    return tuple(each for tensor in tensors for each in reduce_tensor(tensor))


def _rebuilt(parts):
    return [rebuild(*arguments) for rebuild, arguments in zip(parts[::2], parts[1::2], strict=True)]


def reduce_nested_tensor(nt):
    sizes, strides, offsets = nt._nested_tensor_size(), nt._nested_tensor_strides(), nt._nested_tensor_storage_offsets()
    return rebuild_nested_tensor, (*_parts(nt.detach().values(), sizes, strides, offsets), nt.requires_grad)


def rebuild_nested_tensor(*parts):
    from mica import nested

    *parts, requires_grad = parts
    buffer, sizes, strides, offsets = _rebuilt(parts)
    members = [
        buffer.as_strided(size, stride, offset)
        for size, stride, offset in zip(sizes.tolist(), strides.tolist(), offsets.tolist(), strict=True)
    ]
    return nested.as_nested_tensor(members).requires_grad_(requires_grad)


def reduce_sparse_tensor(sparse):
    detached = sparse.detach()
    if sparse.layout is _C.sparse_coo:
        parts = _parts(detached._indices(), detached._values())
        return rebuild_sparse_coo_tensor, (*parts, sparse.shape, sparse.is_coalesced(), sparse.requires_grad)
    by_rows = sparse.layout in (_C.sparse_csr, _C.sparse_bsr)
    compressed = detached.crow_indices() if by_rows else detached.ccol_indices()
    plain = detached.col_indices() if by_rows else detached.row_indices()
    parts = _parts(compressed, plain, detached.values())
    return rebuild_sparse_compressed_tensor, (*parts, sparse.shape, sparse.layout, sparse.requires_grad)


def rebuild_sparse_coo_tensor(*parts):
    *parts, shape, is_coalesced, requires_grad = parts
    indices, values = _rebuilt(parts)
    import mica

    made = mica.sparse_coo_tensor(indices, values, shape, is_coalesced=is_coalesced)
    return made.requires_grad_(requires_grad)


def rebuild_sparse_compressed_tensor(*parts):
    *parts, shape, layout, requires_grad = parts
    import mica

    return mica.sparse_compressed_tensor(*_rebuilt(parts), shape, layout=layout).requires_grad_(requires_grad)


# ---- events


def rebuild_event(device, handle):
    from mica import cuda

    return cuda.Event.from_ipc_handle(device, handle)


def reduce_event(event):
    return rebuild_event, (event.device, event.ipc_handle())


def init_reductions():
    """Let every pickler of multiprocessing send tensors as this module describes."""
    ForkingPickler.register(UntypedStorage, reduce_storage)
    ForkingPickler.register(TypedStorage, reduce_typed_storage)
    ForkingPickler.register(_C.Tensor, reduce_tensor)
    ForkingPickler.register(Parameter, reduce_tensor)


__all__ = [
    "SharedCache",
    "StorageWeakRef",
    "fd_id",
    "init_reductions",
    "rebuild_cuda_tensor",
    "rebuild_event",
    "rebuild_meta_tensor",
    "rebuild_nested_tensor",
    "rebuild_sparse_compressed_tensor",
    "rebuild_sparse_coo_tensor",
    "rebuild_storage_empty",
    "rebuild_storage_fd",
    "rebuild_tensor",
    "rebuild_typed_storage",
    "rebuild_typed_storage_child",
    "reduce_event",
    "reduce_nested_tensor",
    "reduce_sparse_tensor",
    "reduce_storage",
    "reduce_tensor",
    "reduce_typed_storage",
    "reduce_typed_storage_child",
    "reduction",
    "shared_cache",
    "storage_from_cache",
]
