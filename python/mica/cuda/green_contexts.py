"""Green contexts: a part of a GPU's multiprocessors for some of the work, so that the rest stays free for other work.

context = GreenContext.create(num_sms=16)
context.set_context()
y = model(x)  # on 16 multiprocessors
context.pop_context()
"""

import weakref

from mica import _C
from mica.cuda.streams import ExternalStream, _cuda_device, current_stream, set_stream

__all__ = ["GreenContext"]

SUPPORTED = True


class GreenContext:
    """Some multiprocessors of a GPU, and streams whose work runs on those alone."""

    @staticmethod
    def create(*, num_sms=None, workqueue_scope=None, workqueue_concurrency_limit=None, device_id=None):
        """A context of `num_sms` multiprocessors, or of as many more as the GPU parts off at once."""
        if workqueue_scope is not None or workqueue_concurrency_limit is not None:
            raise NotImplementedError("GreenContext.create: queues of work are not parted, only multiprocessors")
        if num_sms is None:
            raise RuntimeError("GreenContext.create: say how many multiprocessors (num_sms)")
        if _C._device_count("cuda") == 0:
            raise RuntimeError("Green contexts need a CUDA device, and there is none")
        made = GreenContext()
        made._device = _cuda_device(device_id)
        handle, count = _C._backend_query(made._device, "green_context_new", str(int(num_sms))).split()
        made._handle, made.num_sms, made._streams, made._outer = handle, int(count), [], []
        weakref.finalize(made, _free, made._device, handle, made._streams)
        return made

    @staticmethod
    def max_workqueue_concurrency(device_id=None):
        """How many queues of work a device has, which the driver does not say here."""
        raise NotImplementedError("GreenContext.max_workqueue_concurrency: queues of work are not parted")

    def _check(self):
        if not hasattr(self, "_handle"):
            raise RuntimeError("this GreenContext was not made by GreenContext.create")

    def Stream(self):
        """A new stream of this context. It waits for no other stream by itself, and lives as long as the context."""
        self._check()
        handle = _C._backend_query(self._device, "green_stream_new", self._handle)
        self._streams.append(handle)
        return ExternalStream(int(handle), self._device)

    def set_context(self):
        """Queue on this context from now on, after what was queued before."""
        self._check()
        before = current_stream(self._device)
        inner = self.Stream() if not self._outer else before
        if not self._outer:
            inner.wait_stream(before)
        set_stream(inner)
        self._outer.append(before)

    def pop_context(self):
        """Queue again where it was queued before `set_context`, after what was queued here."""
        self._check()
        if not self._outer:
            raise RuntimeError("pop_context: this GreenContext is not the current one")
        before = self._outer.pop()
        if not self._outer:
            before.wait_stream(current_stream(self._device))
        set_stream(before)


def _free(device, context, streams):
    for stream in streams:
        _C._backend_query(device, "green_stream_free", stream)
    _C._backend_query(device, "green_context_free", context)
