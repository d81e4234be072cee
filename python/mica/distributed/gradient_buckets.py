"""Gradients in buckets, which a hook of DistributedDataParallel's sends between processes."""

import inspect

import mica
from mica.autograd.variable import Variable
from mica.futures import Future

FIRST_BUCKET_BYTES = 2**20  # a small one, so that sending begins early


class GradBucket:
    """The gradients of some parameters, one after the other in one tensor."""

    def __init__(self, index, is_last, parameters):
        self._index, self._is_last, self._parameters = index, is_last, parameters
        self._buffer = mica.cat([
            p.grad.detach().reshape(-1) if p.grad is not None else mica.zeros_like(p).detach().reshape(-1)
            for p in parameters
        ])  # fmt: skip

    def index(self):
        """Its number: buckets are sent in this order."""
        return self._index

    def is_last(self):
        """Whether it is the last one of a backward pass."""
        return self._is_last

    def buffer(self):
        """The gradients as one tensor of one dimension."""
        return self._buffer

    def set_buffer(self, buffer):
        """Put another tensor in the place of the gradients."""
        self._buffer = buffer

    def gradients(self):
        """The gradients as views of the buffer."""
        parts = self._buffer.split([p.numel() for p in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters, strict=True)]

    def parameters(self):
        return list(self._parameters)


def check_hook(hook):
    """Refuse what is no hook of gradients: it is called as hook(state, bucket), and returns a future of a tensor."""
    if not callable(hook):
        raise TypeError("Communication hook must be callable.")
    annotations = inspect.signature(hook)
    bucket = annotations.parameters["bucket"].annotation
    if bucket not in (inspect.Parameter.empty, GradBucket):
        raise ValueError("Communication hook: bucket annotation should be dist.GradBucket.")
    returned = annotations.return_annotation
    if returned not in (inspect.Signature.empty, Future, Future[mica.Tensor]):
        raise ValueError("Communication hook: return annotation should be torch.futures.Future[torch.Tensor].")


def _in_buckets(parameters, limit):
    """The parameters in the order in which backward reaches them, in lists of one dtype and at most `limit` bytes."""
    buckets, size, most = [], 0, FIRST_BUCKET_BYTES
    for p in reversed(parameters):
        nbytes = p.numel() * p.element_size()
        kind = (p.dtype, p.device)
        if not buckets or size + nbytes > most or kind != (buckets[-1][0].dtype, buckets[-1][0].device):
            most = FIRST_BUCKET_BYTES if not buckets else limit
            buckets.append([])
            size = 0
        buckets[-1].append(p)
        size += nbytes
    return buckets


class Communication:
    """Calls a hook with every bucket at the end of a backward pass that reached a parameter."""

    def __init__(self, parameters, limit, state, hook, is_on):
        self._buckets = _in_buckets(parameters, limit)
        self._state, self._hook, self._is_on = state, hook, is_on
        self._reached = set()
        self._handles = [p.register_post_accumulate_grad_hook(self._reach) for p in parameters]

    def begin(self):
        """A forward pass begins: what a backward pass that failed had reached is of no account."""
        self._reached.clear()

    def _reach(self, parameter):
        if not self._is_on():
            return
        if not self._reached:
            Variable._execution_engine.queue_callback(self._send)
        self._reached.add(id(parameter))

    def _send(self):
        reached, self._reached = self._reached, set()
        sent = []
        for index, parameters in enumerate(self._buckets):
            bucket = GradBucket(index, index == len(self._buckets) - 1, parameters)
            sent.append((bucket, self._hook(self._state, bucket)))
        for bucket, future in sent:
            if not isinstance(future, Future):
                raise RuntimeError("Communication hook: the return value should be a torch.futures.Future.")
            result = future.wait()
            result = result[0] if isinstance(result, (list, tuple)) else result
            bucket.set_buffer(result)
            with mica.no_grad():
                for p, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
                    if id(p) in reached:
                        p.grad.copy_(gradient)
