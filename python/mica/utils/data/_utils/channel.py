"""What a worker process and its parent say to each other: messages over a socket, large memory beside them.

A frame is a header (the lengths of what follows, the number of descriptors that come with it), a pickled description and
a pickled payload. Tensors that are not small lie in segments of shared memory; a segment's descriptor travels once.
"""

import array
import copyreg
import io
import os
import pickle
import socket
import struct
import threading

from mica import _C
from mica.nn.parameter import Parameter
from mica.utils.data._utils.worker import SMALLEST_SHARED

_HEADER = struct.Struct("<IQH")
_MOST_DESCRIPTORS = 200  # the system takes 253 in one message
_LARGEST_PAYLOAD = 1 << 16  # a larger one goes through shared memory, so that a send does not wait for the receiver


def send_frame(sock, description, payload=b"", descriptors=()):
    """Send a frame, and wait until all of it is sent."""
    header = _HEADER.pack(len(description), len(payload), len(descriptors))
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    data = b"".join((header, description, payload))
    sent = sock.sendmsg([data], ancillary)
    if sent < len(data):
        sock.sendall(memoryview(data)[sent:])


def frame(description):
    """The bytes of a frame that brings no descriptors."""
    return _HEADER.pack(len(description), 0, 0) + description


def receive_frame(sock):
    """(description, payload, descriptors); EOFError when the other end is closed."""
    header, ancillary, _, _ = sock.recvmsg(
        _HEADER.size, socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS), socket.MSG_CMSG_CLOEXEC
    )
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) // 4 * 4])
    try:
        if not header:
            raise EOFError
        header += _receive_exactly(sock, _HEADER.size - len(header))
        description_size, payload_size, count = _HEADER.unpack(header)
        if count != len(descriptors):
            raise OSError(f"{count} file descriptors were sent and {len(descriptors)} came: too many open files?")
        return _receive_exactly(sock, description_size), _receive_exactly(sock, payload_size), descriptors
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _receive_exactly(sock, count):
    if count == 0:
        return b""
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = sock.recv_into(view)
        if got == 0:
            raise EOFError
        view = view[got:]
    return data


# ---- batches, from the worker


class _Segment:
    """In a payload: a storage that lies in shared memory."""

    def __init__(self, segment, nbytes):
        self.segment, self.nbytes = segment, nbytes

    def __reduce__(self):
        return _open_segment, (self.segment, self.nbytes)


class _Inline:
    """A small storage within a payload."""

    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        return _make_storage, (self.data,)


class BatchSender:
    """Sends batches over a socket, from memory that comes back."""

    def __init__(self, sock):
        self._sock = sock
        self.pool = _C._SegmentPool()
        self._table = {**copyreg.dispatch_table, _C.Tensor: self._reduce_tensor, Parameter: self._reduce_parameter}

    def send(self, number, data):
        self._storages = {}  # storages that this message has sent, by address, with what stands for them
        self._announced, self._descriptors, self._buffers = [], [], []
        self._sent = []  # (segment, whether this message was to announce it), for every reference to one
        try:
            payload, payload_segment = self._pickle(data), None
            if len(payload) > _LARGEST_PAYLOAD:
                payload, payload_segment = b"", self._share_bytes(payload)
        except BaseException:
            # Nothing was sent, so the receiver will give nothing back.
            for segment, announced in self._sent:
                self.pool.take_back(segment, announced)
            self._storages = None
            raise
        while len(self._descriptors) > _MOST_DESCRIPTORS:
            self._send(None, _MOST_DESCRIPTORS, None, b"")
        self._send(number, len(self._descriptors), payload_segment, payload)
        self.pool.close_descriptors()
        self._storages = None

    def _pickle(self, data):
        payload = io.BytesIO()
        pickler = pickle.Pickler(payload, 5, buffer_callback=self._take_buffer)
        pickler.dispatch_table = self._table
        pickler.dump(data)
        return payload.getbuffer()

    def _send(self, number, count, payload_segment, payload):
        description = (number, self._announced[:count], self.pool.take_dropped(), self._buffers, payload_segment)
        send_frame(self._sock, pickle.dumps(description), payload, self._descriptors[:count])
        del self._announced[:count], self._descriptors[:count]

    def _share(self, storage):
        """How to refer to a storage of the pool; None if it is not of the pool."""
        handle = self.pool.send(storage)
        if handle is None:
            return None
        segment, capacity, descriptor = handle
        self._sent.append((segment, descriptor >= 0))
        if descriptor >= 0:
            self._announced.append((segment, capacity))
            self._descriptors.append(descriptor)
        return segment, len(storage)

    def _share_bytes(self, data):
        storage = self.pool.allocate(len(data))
        storage._tensor(_C.uint8).copy_(_C.frombuffer(data, dtype=_C.uint8))
        return self._share(storage)

    def _take_buffer(self, buffer):
        """Take a NumPy array's buffer; True leaves a small one in the pickle."""
        data = buffer.raw()
        if data.nbytes < SMALLEST_SHARED:
            return True
        self._buffers.append(self._share_bytes(data))
        return False

    def _stand_in(self, storage):
        found = self._storages.get(storage._cdata)
        if found is None:
            if len(storage) < SMALLEST_SHARED:
                made = _Inline(bytes(storage))
            else:
                reference = self._share(storage)
                if reference is None:
                    copy = self.pool.allocate(len(storage))
                    reference = self._share(copy.copy_(storage))
                made = _Segment(*reference)
            found = self._storages[storage._cdata] = (made, storage)
        return found[0]

    def _reduce_tensor(self, tensor):
        if tensor.requires_grad and not tensor.is_leaf:
            raise RuntimeError(
                "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
                "crossing process boundaries.  If you just want to transfer the data, call detach() on the tensor before "
                "serializing (e.g., putting it on the queue)."
            )
        requires_grad = tensor.requires_grad
        plain = tensor.is_cpu and tensor.layout is _C.strided and not (tensor.is_nested or tensor.is_quantized)
        if not plain or tensor.is_conj() or tensor.is_neg():
            return tensor.__reduce_ex__(5)  # of its parts, which are such tensors, where it has some
        storage = tensor.untyped_storage()
        if len(storage) > max(2 * tensor.nbytes, 64) and storage._cdata not in self._storages:
            tensor = tensor.detach().clone()  # a small part of a large storage that is not sent otherwise
        geometry = (tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        return _make_tensor, (self._stand_in(tensor.untyped_storage()), *geometry, requires_grad)

    def _reduce_parameter(self, parameter):
        return Parameter, (parameter.detach(), parameter.requires_grad)


# ---- and in the parent


class _Receiving(threading.local):
    views = None


_receiving = _Receiving()


def _open_segment(segment, nbytes):
    return _receiving.views.open(segment, nbytes)


def _make_storage(data):
    storage = _C.UntypedStorage(len(data))
    if data:
        storage._tensor(_C.uint8).copy_(_C.frombuffer(bytearray(data), dtype=_C.uint8))
    return storage


def _make_tensor(storage, dtype, offset, size, stride, requires_grad):
    tensor = _C._view_storage(storage, dtype, offset, size, stride)
    return tensor.requires_grad_() if requires_grad else tensor


class BatchReceiver:
    """Receives what a BatchSender sends."""

    def __init__(self, sock):
        self._sock = sock
        self._views = _C._SegmentViews()
        self.take_returned = self._views.take_returned  # segments that the sender can use again

    def receive(self):
        """(number, data), or None for a frame that only brings memory; EOFError when the sender is gone."""
        description, payload, descriptors = receive_frame(self._sock)
        number, announced, dropped, buffers, payload_segment = pickle.loads(description)
        try:
            for (segment, capacity), descriptor in zip(announced, descriptors, strict=True):
                self._views.add(segment, descriptor, capacity)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._views.forget(dropped)
        if payload_segment is not None:
            payload = bytes(self._views.open(*payload_segment))
        elif not payload:
            return None
        arrays = [self._views.open(*each)._tensor(_C.uint8).numpy() for each in buffers]
        _receiving.views = self._views
        try:
            return number, pickle.loads(payload, buffers=arrays)
        finally:
            _receiving.views = None
