"""Calls that were started and may not be done yet."""

import datetime

import mica
from mica.distributed._errors import DistBackendError
from mica.distributed.options import NO_TIMEOUT

_FOREVER = 1e9


class Work:
    """Something that processes do together. Without an engine's handle it is done. Backends of others derive from it."""

    def __init__(self, result=None, handle=None, finish=None, group=None, keep=None):
        self._result = result if result is not None else []
        self._handle, self._finish, self._group, self._keep = handle, finish, group, keep
        self._error = None

    def _finished(self):
        """Finishes a call that is complete: copies results to the tensors that they belong to."""
        self._handle = self._keep = None
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()

    def wait(self, timeout=NO_TIMEOUT):
        """Return when the call is complete, or raise its error."""
        if self._error is not None:
            raise self._error
        if self._handle is not None:
            limit = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout
            limit = _FOREVER if limit is None or limit <= 0 else limit
            try:
                done = self._handle.wait(limit)
            except Exception as error:
                self._error, self._handle = error, None
                raise
            if not done:
                raise DistBackendError(f"Work ran for more than {limit * 1000:.0f} ms without coming to its end")
            self._finished()
        elif self._finish is not None:
            self._finished()
        return True

    def synchronize(self):
        self.wait()

    block_current_stream = synchronize

    def is_completed(self):
        if self._handle is not None:
            try:
                if not self._handle.done():
                    return False
                self.wait()
            except Exception as error:
                self._error = error
        return True

    def is_success(self):
        return self.is_completed() and self._error is None

    def exception(self):
        return self._error if self.is_completed() else None

    def result(self):
        return self._result

    def source_rank(self):
        """Whom the received message is from."""
        return self._source

    _source_rank = source_rank
    _source = -1

    def abort(self):
        if self._group is not None:
            self._group.abort("a rank has aborted the work")

    def get_future(self):
        """A future of the results."""
        future = mica.futures.Future()
        if self.is_completed():
            _complete(future, self)
        else:
            _waiter().put((future, self))
        return future

    def get_future_result(self):
        return self.get_future()


def _complete(future, work):
    try:
        work.wait()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(work.result())


_queue = None


def _waiter():
    """The queue of a thread that completes futures. The engine cannot do that, because it knows nothing of Python."""
    global _queue
    if _queue is None:
        import queue
        import threading

        _queue = queue.SimpleQueue()

        def serve(waiting):
            while True:
                _complete(*waiting.get())

        threading.Thread(target=serve, args=(_queue,), name="mica-futures", daemon=True).start()
    return _queue


class Received(Work):
    """A message that comes in: it knows whom it is from."""

    def _finished(self):
        if self._handle is not None:
            self._source = self._handle.sender()
        super()._finished()


class All(Work):
    """Several works as one."""

    def __init__(self, works, result):
        super().__init__(result)
        self._works = [each for each in works if each is not None]

    def wait(self, timeout=NO_TIMEOUT):
        for each in self._works:
            each.wait(timeout)
        return True

    def is_completed(self):
        return all(each.is_completed() for each in self._works)

    def exception(self):
        return next((e for e in (each.exception() for each in self._works) if e is not None), None)

    def is_success(self):
        return self.is_completed() and self.exception() is None
