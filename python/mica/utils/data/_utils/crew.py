"""The workers of one iterator: started, given tasks, listened to, and stopped."""

import contextlib
import gc
import os
import pickle
import queue
import select
import signal
import socket
import threading
import time
import weakref

from mica._utils import ExceptionWrapper
from mica.utils.data._utils import channel, worker

_PATIENCE = 5.0  # seconds: for a worker to end by itself, and between looks at whether all are alive

# A forked child must not hold the parent's ends: a worker knows that its parent is gone when its socket is closed.
_parent_ends = weakref.WeakSet()


def _close_parent_ends():
    for sock in list(_parent_ends):
        sock.close()


os.register_at_fork(after_in_child=_close_parent_ends)


def _process_main(job, sock):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets the signal as well, and ends the workers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    gc.freeze()  # collections then do not touch the parent's objects and their pages
    sender = channel.BatchSender(sock)
    worker._current.pool = sender.pool

    def receive():
        try:
            description, _, _ = channel.receive_frame(sock)
        except (EOFError, ConnectionError):
            return None
        task, returned = pickle.loads(description)
        sender.pool.give_back(returned)
        return task

    def send(number, data):
        try:
            sender.send(number, data)
        except (BrokenPipeError, ConnectionError):
            raise SystemExit from None
        except Exception:
            # A batch that cannot be sent is an error of the batch. The error's own type may be one that cannot be sent
            # either.
            where = f"in DataLoader worker process {job.worker_id}"
            wrapper = ExceptionWrapper(where=where)
            if isinstance(data, ExceptionWrapper):
                wrapper.exc_type, wrapper.exc_msg = RuntimeError, data.exc_msg
            try:
                sender.send(number, wrapper)
            except Exception:
                wrapper.exc_type = RuntimeError
                sender.send(number, wrapper)

    worker.run(job, receive, send, in_thread=False)
    sock.close()


class _Process:
    """A worker process, as its parent sees it."""

    def __init__(self, context, job):
        ours, theirs = socket.socketpair()
        self.sock = ours
        _parent_ends.add(ours)
        self.receiver = channel.BatchReceiver(ours)
        self.unsent = bytearray()
        self.process = context.Process(target=_process_main, args=(job, theirs), daemon=True)
        # An interrupt is blocked until the worker ignores it; otherwise one that comes in between would end the worker.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def send(self, task):
        self.unsent += channel.frame(pickle.dumps((task, self.receiver.take_returned())))
        self.flush()

    def flush(self):
        """Send what the socket takes without waiting."""
        with contextlib.suppress(BlockingIOError, ConnectionError):  # a dead worker is noticed by its silence
            while self.unsent:
                del self.unsent[: self.sock.send(self.unsent, socket.MSG_DONTWAIT)]


class ProcessCrew:
    """Worker processes."""

    def __init__(self, context, jobs):
        self._owner = os.getpid()
        self.stopped = False
        self.workers = []
        try:
            for job in jobs:
                self.workers.append(_Process(context, job))
        except BaseException:
            self.stop()
            raise
        self._by_descriptor = {each.sock.fileno(): each for each in self.workers}

    def send(self, worker_id, task):
        self.workers[worker_id].send(task)

    def receive(self, timeout=None):
        """The next (number, data) from whichever worker; None if none came in time. Raises if a worker has died."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _PATIENCE if deadline is None else max(0.0, deadline - time.monotonic())
            ready = self._poll(min(left, _PATIENCE))
            for descriptor in ready:
                result = self._receive_from(self._by_descriptor[descriptor])
                if result is not None:
                    return result
            if not ready:
                for each in self._by_descriptor.values():
                    if not each.process.is_alive():
                        self._raise_dead(each)
                if deadline is not None and time.monotonic() >= deadline:
                    return None

    def _poll(self, timeout):
        poll = select.poll()
        for descriptor, each in self._by_descriptor.items():
            poll.register(descriptor, select.POLLIN | (select.POLLOUT if each.unsent else 0))
        readable = []
        for descriptor, event in poll.poll(timeout * 1000):
            if event & select.POLLOUT:
                self._by_descriptor[descriptor].flush()
            if event & ~select.POLLOUT:
                readable.append(descriptor)
        return readable

    def _receive_from(self, each):
        try:
            return each.receiver.receive()
        except (EOFError, ConnectionError):
            each.process.join(_PATIENCE)
            if each.process.exitcode == 0:  # dismissed, and gone
                del self._by_descriptor[each.sock.fileno()]
                return None
            self._raise_dead(each)

    def _raise_dead(self, each):
        process = each.process
        process.join(_PATIENCE)
        code, pid = process.exitcode, process.pid
        self.stop()
        how = "exited unexpectedly"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how += f": it is killed by signal: {signal.Signals(-code).name}"
            if -code == signal.SIGKILL:
                how += " (the system kills processes so when memory runs out)"
            elif -code == signal.SIGBUS:
                how += " (there may be too little shared memory)"
        elif code is not None:
            how += f" with code {code}"
        raise RuntimeError(f"DataLoader worker (pid(s) {pid}) {how}")

    def dismiss(self, worker_id):
        """Let a worker end."""
        with contextlib.suppress(OSError):
            self.workers[worker_id].sock.shutdown(socket.SHUT_WR)

    def stop(self, patience=_PATIENCE):
        """End all workers: by themselves if they can in that many seconds, else by force."""
        self.stopped = True
        if os.getpid() != self._owner:
            return
        for each in self.workers:
            each.sock.close()
        deadline = time.monotonic() + patience
        for end in (None, "terminate", "kill"):
            for each in self.workers:
                if end is not None and each.process.is_alive():
                    getattr(each.process, end)()
            for each in self.workers:
                each.process.join(max(0.0, deadline - time.monotonic()))
            deadline = time.monotonic() + 1.0
        self._by_descriptor = {}


class ThreadCrew:
    """Worker threads: for datasets whose code releases the interpreter lock."""

    def __init__(self, jobs):
        self.stopped = False
        self._results = queue.SimpleQueue()
        self._tasks = [queue.SimpleQueue() for _ in jobs]
        self._threads = [
            threading.Thread(target=_thread_main, args=(job, tasks, self._results), daemon=True)
            for job, tasks in zip(jobs, self._tasks, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, worker_id, task):
        self._tasks[worker_id].put(task)

    def receive(self, timeout=None):
        try:
            return self._results.get(timeout=timeout)
        except queue.Empty:
            return None

    def dismiss(self, worker_id):
        self._tasks[worker_id].put(None)

    def stop(self, patience=_PATIENCE):
        """Ask all threads to end after their present task, and wait at most so long. A thread cannot be forced to end."""
        self.stopped = True
        for tasks in self._tasks:
            with contextlib.suppress(queue.Empty):
                while True:
                    tasks.get_nowait()
            tasks.put(None)
        deadline = time.monotonic() + patience
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


def _thread_main(job, tasks, results):
    worker.run(job, tasks.get, lambda number, data: results.put((number, data)), in_thread=True)
