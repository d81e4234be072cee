"""Time limits on parts of a program: a process that does not come to an end of one in time is killed."""

import abc
import sys
import threading
import time
from contextlib import contextmanager

from mica.distributed.elastic.utils.logging import get_logger

__all__ = ["RequestQueue", "TimerClient", "TimerRequest", "TimerServer", "configure", "expires"]

logger = get_logger(__name__)


class TimerRequest:
    """A time limit that begins; with a negative time, one that ends."""

    __slots__ = ["expiration_time", "scope_id", "worker_id"]

    def __init__(self, worker_id, scope_id, expiration_time):
        self.worker_id, self.scope_id, self.expiration_time = worker_id, scope_id, expiration_time

    def __eq__(self, other):
        return isinstance(other, TimerRequest) and (self.worker_id, self.scope_id, self.expiration_time) == (
            other.worker_id, other.scope_id, other.expiration_time)  # fmt: skip

    __hash__ = None


class TimerClient(abc.ABC):
    """Tells a server of time limits, from the process that has them."""

    @abc.abstractmethod
    def acquire(self, scope_id, expiration_time):
        """A limit begins."""

    @abc.abstractmethod
    def release(self, scope_id):
        """A limit ends."""


class RequestQueue(abc.ABC):
    """How requests come to a server."""

    @abc.abstractmethod
    def size(self):
        """How many there are."""

    @abc.abstractmethod
    def get(self, size, timeout):
        """Up to so many requests, after up to so many seconds."""


class TimerServer(abc.ABC):
    """Watches time limits in a thread, and kills the processes that pass them."""

    def __init__(self, request_queue, max_interval, daemon=True):
        self._request_queue, self._max_interval, self._daemon = request_queue, max_interval, daemon
        self._watchdog_thread, self._stop_signaled = None, False

    @abc.abstractmethod
    def register_timers(self, timer_requests):
        """Take requests."""

    @abc.abstractmethod
    def clear_timers(self, worker_ids):
        """Forget the limits of processes."""

    @abc.abstractmethod
    def get_expired_timers(self, deadline):
        """The limits that have passed, by process."""

    @abc.abstractmethod
    def _reap_worker(self, worker_id):
        """Kill a process. Returns whether that was done."""

    def _reap_worker_no_throw(self, worker_id):
        try:
            return self._reap_worker(worker_id)
        except Exception:
            logger.exception("a process that has passed its time limit could not be killed")
            return True

    def _run_watchdog(self):
        self.register_timers(self._request_queue.get(max(1, self._request_queue.size()), self._max_interval))
        killed = set()
        for worker_id, passed in self.get_expired_timers(time.time()).items():
            logger.warning("Process %s has passed its time limit in %s", worker_id, [each.scope_id for each in passed])
            if self._reap_worker_no_throw(worker_id):
                killed.add(worker_id)
        self.clear_timers(killed)

    def _watchdog_loop(self):
        while not self._stop_signaled:
            try:
                self._run_watchdog()
            except Exception:
                logger.exception("Error running watchdog")

    def start(self):
        self._watchdog_thread = threading.Thread(target=self._watchdog_loop, daemon=self._daemon)
        self._watchdog_thread.start()

    def stop(self):
        self._stop_signaled = True
        if self._watchdog_thread is not None:
            self._watchdog_thread.join(2 * self._max_interval)
            self._watchdog_thread = None


_client = None


def configure(timer_client):
    """Let this client be the one that `expires` uses."""
    global _client
    _client = timer_client


@contextmanager
def expires(after, scope=None, client=None):
    """A context with a time limit in seconds."""
    client = _client if client is None else client
    if client is None:
        raise RuntimeError("Configure timer client before using countdown timers.")
    if scope is None:
        caller = sys._getframe(2)  # this generator's caller is contextlib
        scope = f"{caller.f_code.co_filename}#{caller.f_lineno}"
    client.acquire(scope, time.time() + after)
    try:
        yield
    finally:
        client.release(scope)
