"""Time limits of processes on this machine, told through a queue of multiprocessing's."""

import contextlib
import os
import queue
import signal
import time

from mica.distributed.elastic.timer.api import RequestQueue, TimerClient, TimerRequest, TimerServer

__all__ = ["LocalTimerClient", "LocalTimerServer", "MultiprocessingRequestQueue"]


class LocalTimerClient(TimerClient):
    """Tells a LocalTimerServer through the queue that both have."""

    def __init__(self, mp_queue):
        self._queue = mp_queue

    def acquire(self, scope_id, expiration_time):
        self._queue.put(TimerRequest(os.getpid(), scope_id, expiration_time))

    def release(self, scope_id):
        self._queue.put(TimerRequest(os.getpid(), scope_id, -1))


class MultiprocessingRequestQueue(RequestQueue):
    """A queue of multiprocessing's."""

    def __init__(self, mp_queue):
        self._queue = mp_queue

    def size(self):
        return self._queue.qsize()

    def get(self, size, timeout):
        requests, end = [], time.monotonic() + timeout
        while len(requests) < size:
            try:
                requests.append(self._queue.get(timeout=max(end - time.monotonic(), 0)))
            except queue.Empty:
                break
        return requests


class LocalTimerServer(TimerServer):
    """Kills processes of this machine that pass a time limit."""

    def __init__(self, mp_queue, max_interval=60, daemon=True):
        super().__init__(MultiprocessingRequestQueue(mp_queue), max_interval, daemon)
        self._timers = {}

    def register_timers(self, timer_requests):
        for request in timer_requests:
            key = (request.worker_id, request.scope_id)
            if request.expiration_time < 0:
                self._timers.pop(key, None)
            else:
                self._timers[key] = request

    def clear_timers(self, worker_ids):
        self._timers = {key: each for key, each in self._timers.items() if key[0] not in worker_ids}

    def get_expired_timers(self, deadline):
        passed = {}
        for request in self._timers.values():
            if request.expiration_time <= deadline:
                passed.setdefault(request.worker_id, []).append(request)
        return passed

    def _reap_worker(self, worker_id):
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker_id, signal.SIGKILL)
        return True
