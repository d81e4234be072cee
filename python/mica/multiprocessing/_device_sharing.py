"""Memory of GPUs between processes.

The sender names the memory by a handle (the backend's query "export_memory") and keeps it until all receivers have let
go. How it knows: each storage that is sent has a pipe, whose writing end goes along with the handle; when every process
that holds it has closed it, by itself or by ending, the reading end is at its end.
"""

import os
import select
from multiprocessing.reduction import DupFd

from mica import _C
from mica.multiprocessing._storage_cache import StorageWeakRef, shared_cache, storage_from_cache
from mica.storage import UntypedStorage

_sent = {}  # reading end of a pipe -> (the process that sent, the storage that is kept)


def share(storage):
    """What another process needs to use the storage: device, handle, offset, size, and the writing end of a pipe."""
    collect()
    device = storage.device
    handle, offset = _C._backend_query(device, "export_memory", str(storage.data_ptr())).split()
    reading, writing = os.pipe()
    try:
        ticket = DupFd(writing)
    finally:
        os.close(writing)
    _sent[reading] = (os.getpid(), storage)
    return device.type, device.index, handle, int(offset), len(storage), ticket


class _Imported:
    """A piece of memory that another process has; it is given back when the last storage over it is gone."""

    def __init__(self, device, handle, ticket):
        self.device, self.handle, self.ticket = device, handle, ticket
        self.address = int(_C._backend_query(device, "import_memory", handle))

    def __del__(self):
        if getattr(self, "address", None):
            _C._backend_query(self.device, "release_memory", self.handle)
        os.close(self.ticket)


def receive(shared):
    """The storage that share() has described."""
    kind, index, handle, offset, nbytes, ticket = shared
    ticket = ticket.detach()
    key = (handle, offset, nbytes)
    storage = storage_from_cache(UntypedStorage, key)
    if storage is not None:
        os.close(ticket)  # the storage in this process holds an end of its own
        return storage
    device = _C.device(kind, index)
    owner = _Imported(device, handle, ticket)
    storage = UntypedStorage._over(owner.address + offset, nbytes, device, owner)
    shared_cache[key] = StorageWeakRef(storage)
    return storage


def collect():
    """Let go of memory that no other process uses any longer."""
    for reading, (process, _) in list(_sent.items()):
        if process != os.getpid():  # kept by the process that this one was forked from
            del _sent[reading]
            os.close(reading)
            continue
        ready, _, _ = select.select([reading], [], [], 0)
        if ready and os.read(reading, 1) == b"":
            del _sent[reading]
            os.close(reading)
