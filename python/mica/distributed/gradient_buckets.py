"""Gradients in buckets: which parameters lie in which, and what a communication hook sees of one."""

import inspect

import mica
from mica.futures import Future

FIRST_BUCKET_BYTES = 2**20  # a small one, so that sending begins early


def assign(parameters, limits, alone=()):
    """Indices of parameters in lists of one dtype and device, each of at most so many bytes.

    The first list of a kind has the first limit, every later one the last. A parameter whose index is in `alone` has a
    list of its own: its gradient is sparse.
    """
    done, filling = [], {}  # kind: [indices, bytes, number of lists of this kind before]
    for index, parameter in enumerate(parameters):
        if index in alone:
            done.append([index])
            continue
        kind = parameter.dtype, parameter.device
        bucket = filling.setdefault(kind, [[], 0, 0])
        bucket[0].append(index)
        bucket[1] += parameter.numel() * parameter.element_size()
        if bucket[1] >= limits[min(bucket[2], len(limits) - 1)]:
            done.append(bucket[0])
            filling[kind] = [[], 0, bucket[2] + 1]
    done += [bucket[0] for bucket in filling.values() if bucket[0]]
    return sorted(done, key=min)


class GradBucket:
    """The gradients of some parameters, one after the other in one tensor, as a communication hook sees them."""

    def __init__(self, index, is_last, parameters, buffer, views):
        self._index, self._is_last, self._parameters = index, is_last, parameters
        self._buffer, self._views = buffer, views

    def index(self):
        """The number of the bucket. Buckets are sent in this order."""
        return self._index

    def is_last(self):
        """Whether the bucket is the last one of a backward pass."""
        return self._is_last

    def buffer(self):
        """The gradients as one tensor of one dimension."""
        return self._buffer

    def set_buffer(self, buffer):
        """Put another tensor in the place of the gradients."""
        self._buffer, self._views = buffer, None

    def gradients(self):
        """The gradients as views of the buffer."""
        if self._views is None:
            self._views = views_of(self._buffer, self._parameters)
        return list(self._views)

    def parameters(self):
        """The parameters whose gradients these are."""
        return list(self._parameters)


def views_of(buffer, parameters):
    """A view of the buffer for each parameter, laid out as the parameter is."""
    views, at = [], 0
    for parameter in parameters:
        piece = buffer.narrow(0, at, parameter.numel())
        at += parameter.numel()
        if _fills_memory(parameter):
            views.append(piece.as_strided(parameter.size(), parameter.stride(), piece.storage_offset()))
        else:
            views.append(piece.view(parameter.size()))
    return views


def _fills_memory(tensor):
    """Whether the tensor's elements lie in memory without gaps and without sharing places, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return tensor.numel() > 0


class Bucket:
    """The memory in which the gradients of some parameters are reduced, and how far a backward pass has filled it."""

    def __init__(self, indices, parameters, is_sparse, dtype=None):
        self.indices, self.parameters, self.is_sparse = indices, parameters, is_sparse
        self.buffer = self.views = None
        if not is_sparse:
            first = parameters[0]
            count = sum(parameter.numel() for parameter in parameters)
            self.buffer = mica.zeros(count, dtype=dtype or first.dtype, device=first.device)
            self.views = views_of(self.buffer, parameters)
        self.pending = len(indices)
        self.work = None

    def as_seen(self, index, is_last):
        """The bucket as a communication hook sees it."""
        if self.is_sparse:
            gradient = self.parameters[0].grad
            return GradBucket(index, is_last, self.parameters, gradient, [gradient])
        return GradBucket(index, is_last, self.parameters, self.buffer, self.views)


def check_hook(hook):
    """Refuse an object that is not a hook of gradients, which is called as hook(state, bucket) and returns a future of a
    tensor."""
    if not callable(hook):
        raise TypeError("Communication hook must be callable.")
    annotations = inspect.signature(hook)
    bucket = annotations.parameters["bucket"].annotation
    if bucket not in (inspect.Parameter.empty, GradBucket):
        raise ValueError("Communication hook: bucket annotation should be dist.GradBucket.")
    returned = annotations.return_annotation
    if returned not in (inspect.Signature.empty, Future, Future[mica.Tensor]):
        raise ValueError("Communication hook: return annotation should be torch.futures.Future[torch.Tensor].")
