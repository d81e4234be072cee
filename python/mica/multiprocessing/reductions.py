"""How tensors go from process to process: their storages move to shared memory, of which the descriptor is sent."""

import os
import weakref
from multiprocessing.reduction import DupFd, ForkingPickler

from mica import _C
from mica.nn.parameter import Parameter
from mica.storage import TypedStorage, UntypedStorage

# Storages that came from other processes, by the memory that they are: one that comes again is the same object.
_received = weakref.WeakValueDictionary()


def rebuild_storage_fd(descriptor, nbytes):
    fd = descriptor.detach()
    try:
        status = os.fstat(fd)
        key = (status.st_dev, status.st_ino, nbytes)
        storage = _received.get(key)
        if storage is None:
            storage = _received[key] = UntypedStorage._new_shared_fd_cpu(fd, nbytes)
        return storage
    finally:
        os.close(fd)


def rebuild_empty_storage(nbytes, device):
    return UntypedStorage(nbytes, device=device)


def reduce_storage(storage):
    if storage.device.type == "meta" or len(storage) == 0:
        return rebuild_empty_storage, (len(storage), storage.device.type)
    if storage.device.type != "cpu":
        raise RuntimeError(
            f"storages on {storage.device} cannot be sent to other processes; copy them to the CPU first"
        )
    fd, nbytes = storage._share_fd_cpu_()
    return rebuild_storage_fd, (DupFd(fd), nbytes)


def rebuild_typed_storage(storage, dtype):
    return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def reduce_typed_storage(storage):
    return rebuild_typed_storage, (storage._untyped_storage, storage.dtype)


def rebuild_tensor(cls, storage, dtype, offset, size, stride, requires_grad):
    tensor = _C._view_storage(storage, dtype, offset, size, stride)
    return Parameter(tensor, requires_grad) if cls is Parameter else tensor.requires_grad_(requires_grad)


def reduce_tensor(tensor):
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing "
            "process boundaries.  If you just want to transfer the data, call detach() on the tensor before serializing "
            "(e.g., putting it on the queue)."
        )
    if tensor.is_conj() or tensor.is_neg() or tensor.__dict__:
        return tensor.__reduce_ex__(4)  # its storage is shared all the same
    cls = Parameter if type(tensor) is Parameter else None
    geometry = (tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.requires_grad)
    return rebuild_tensor, (cls, tensor.untyped_storage(), *geometry)


def init_reductions():
    """Let every pickler of multiprocessing send tensors so."""
    ForkingPickler.register(UntypedStorage, reduce_storage)
    ForkingPickler.register(TypedStorage, reduce_typed_storage)
    ForkingPickler.register(_C.Tensor, reduce_tensor)
    ForkingPickler.register(Parameter, reduce_tensor)
