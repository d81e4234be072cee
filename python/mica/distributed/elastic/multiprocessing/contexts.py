"""Processes of command lines, and processes of functions."""

import os
import signal
import subprocess
import time

from mica.distributed.elastic.multiprocessing.errors import ProcessFailure, record
from mica.distributed.elastic.multiprocessing.process_context import PContext, RunProcsResult, get_std_cm
from mica.distributed.elastic.multiprocessing.redirects import redirect_stderr, redirect_stdout
from mica.distributed.elastic.multiprocessing.subprocess_handler import get_subprocess_handler


class SubprocessContext(PContext):
    """Processes of a command line."""

    def __init__(self, name, entrypoint, args, envs, logs_specs, log_line_prefixes=None, numa_options=None, **filters):
        super().__init__(name, entrypoint, args, envs, logs_specs, log_line_prefixes, **filters)
        self._numa_options = numa_options
        self._running = set(range(self.nprocs))
        self._failures, self._descriptors = {}, {}
        self.subprocess_handlers = {}

    def _start(self):
        if self.subprocess_handlers:
            raise ValueError(
                "The subprocess handlers already initialized. Most likely the start method got called twice."
            )
        for rank in range(self.nprocs):
            # Started one by one, so that when one cannot be started those before it are known, and ended.
            handler = self.subprocess_handlers[rank] = get_subprocess_handler(
                self.entrypoint, self.args[rank], self.envs[rank], self.stdouts[rank], self.stderrs[rank], rank,
                self._numa_options,
            )  # fmt: skip
            if hasattr(os, "pidfd_open"):
                self._descriptors[rank] = os.pidfd_open(handler.proc.pid)

    def _waited_for(self):
        if len(self._descriptors) < len(self.subprocess_handlers):
            time.sleep(0.01)
        return [self._descriptors[rank] for rank in self._running if rank in self._descriptors]

    def _look(self):
        for rank in sorted(self._running):
            process = self.subprocess_handlers[rank].proc
            code = process.poll()
            if code is None:
                continue
            self._running.discard(rank)
            if code != 0:
                self._failures[rank] = ProcessFailure(rank, process.pid, code, self.error_files[rank])

    def _poll(self):
        self._look()
        if self._running and not self._failures:
            return None
        self.close()
        self._look()
        if self._failures:
            return self._failed(self._failures)
        return RunProcsResult(dict.fromkeys(range(self.nprocs)), {}, self.stdouts, self.stderrs)

    def pids(self):
        return {rank: handler.proc.pid for rank, handler in self.subprocess_handlers.items()}

    def _signal_all(self, death_sig):
        for rank, handler in self.subprocess_handlers.items():
            # Processes that a failed process has started are ended with it. Those that a successful one has left behind
            # were meant to stay.
            if handler.proc.poll() is None or rank in self._failures:
                handler.close(death_sig)

    def _reap(self, seconds):
        end, left = time.monotonic() + seconds, {}
        for rank, handler in self.subprocess_handlers.items():
            try:
                handler.proc.wait(max(end - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                left[rank] = handler.proc.pid
        return left

    def close(self, death_sig=None, timeout=30):
        super().close(death_sig, timeout)
        for rank in self._failures:
            self.subprocess_handlers[rank].close(signal.SIGKILL)
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


def _run_function(local_rank, fn, args, envs, stdouts, stderrs, results):
    """What a process of a function does: its result goes through a pipe."""
    os.environ.update(envs[local_rank])
    with get_std_cm(stdouts[local_rank], redirect_stdout), get_std_cm(stderrs[local_rank], redirect_stderr):
        result = record(fn)(*args[local_rank])
    results[local_rank].send(result)


class MultiprocessContext(PContext):
    """Processes of a function."""

    def __init__(
        self, name, entrypoint, args, envs, start_method, logs_specs, log_line_prefixes=None, numa_options=None, **filters
    ):  # fmt: skip
        super().__init__(name, entrypoint, args, envs, logs_specs, log_line_prefixes, **filters)
        if numa_options is not None:
            raise NotImplementedError("binding processes to the CPUs of a NUMA node is not in Mica yet")
        self.start_method = start_method
        self._return_values, self._receivers, self._started = {}, {}, None

    def _start(self):
        from mica import multiprocessing

        if self._started is not None:
            raise ValueError("The process context already initialized. Most likely the start method got called twice.")
        context, senders = multiprocessing.get_context(self.start_method), {}
        for rank in range(self.nprocs):
            self._receivers[rank], senders[rank] = context.Pipe(duplex=False)
        self._started = multiprocessing.start_processes(
            _run_function,
            (self.entrypoint, self.args, self.envs, self.stdouts, self.stderrs, senders),
            self.nprocs,
            join=False,
            start_method=self.start_method,
        )
        for sender in senders.values():
            sender.close()

    @property
    def _processes(self):
        return [] if self._started is None else self._started.processes

    def _waited_for(self):
        waiting = [receiver for rank, receiver in self._receivers.items() if rank not in self._return_values]
        return [process.sentinel for process in self._processes if process.is_alive()] + waiting

    def _poll(self):
        # Results are taken as they come: a process ends when the whole of its result is read.
        for rank, receiver in self._receivers.items():
            if rank not in self._return_values and receiver.poll():
                try:
                    self._return_values[rank] = receiver.recv()
                except EOFError:  # it ended without a result
                    self._processes[rank].join()
        failures = {}
        for rank, process in enumerate(self._processes):
            if process.exitcode not in (None, 0) or (process.exitcode == 0 and rank not in self._return_values):
                failures[rank] = ProcessFailure(rank, process.pid, process.exitcode, self.error_files[rank])
        if failures:
            self.close()
            return self._failed(failures)
        if len(self._return_values) < self.nprocs or any(process.is_alive() for process in self._processes):
            return None
        self.close()
        return RunProcsResult(self._return_values, {}, self.stdouts, self.stderrs)

    def pids(self):
        return {rank: process.pid for rank, process in enumerate(self._processes)}

    def _signal_all(self, death_sig):
        for process in self._processes:
            if process.is_alive():
                os.kill(process.pid, death_sig)

    def _reap(self, seconds):
        end, left = time.monotonic() + seconds, {}
        for rank, process in enumerate(self._processes):
            process.join(max(end - time.monotonic(), 0))
            if process.is_alive():
                left[rank] = process.pid
        return left
