"""Starts a function in many processes and reports the first that fails."""

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
import traceback
import warnings


class ProcessException(Exception):
    """A process that was started has failed."""

    def __init__(self, msg, error_index, error_pid):
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid

    @property
    def pid(self):
        return self.error_pid

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """A process ended because of an exception."""


class ProcessExitedException(ProcessException):
    """A process was killed by a signal, or ended with an exit code."""

    def __init__(self, msg, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


def _run(fn, rank, args, errors, parent):
    _end_with(parent)
    try:
        fn(rank, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.send(traceback.format_exc())
        sys.exit(1)


def _end_with(parent):
    """Let the kernel interrupt this process when its parent dies. A process of the fork server has no such parent."""
    if os.getppid() != parent:
        return
    # A shell makes programs in the background ignore interrupts, and so do the programs that these start.
    end = signal.SIGTERM if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else signal.SIGINT
    ctypes.CDLL(None).prctl(1, end)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # the parent has died meanwhile
        os.kill(os.getpid(), end)


class ProcessContext:
    """The processes that were started."""

    def __init__(self, processes, errors):
        self.processes = processes
        self._errors = dict(enumerate(errors))
        self._tracebacks = {}
        self.sentinels = {process.sentinel: rank for rank, process in enumerate(processes)}

    def pids(self):
        return [process.pid for process in self.processes]

    def _wait(self, timeout):
        """The processes that have ended, after waiting for one. Tracebacks are read as they come: a long one would keep its
        process from ending."""
        ranks = {receiver: rank for rank, receiver in self._errors.items()}
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if end is None else end - time.monotonic()
            ready = multiprocessing.connection.wait([*self.sentinels, *ranks], left)
            for receiver in ready:
                if receiver in ranks:
                    self._receive(ranks.pop(receiver))
            ended = [each for each in ready if each in self.sentinels]
            if ended or not ready:
                return ended

    def _receive(self, rank):
        receiver = self._errors.pop(rank, None)
        if receiver is not None:
            with contextlib.suppress(EOFError, OSError):
                self._tracebacks[rank] = receiver.recv()
            receiver.close()

    def _join_all(self, seconds):
        end = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0, end - time.monotonic()))

    def join(self, timeout=None, grace_period=None):
        """Wait for a process: True when all have ended well. If one fails, the others are ended and it is reported."""
        if not self.sentinels:
            return True
        failed = None
        for sentinel in self._wait(timeout):
            rank = self.sentinels.pop(sentinel)
            self.processes[rank].join()
            if self.processes[rank].exitcode != 0:
                failed = rank
                break
        if failed is None:
            return not self.sentinels
        self._receive_what_came(failed)
        if grace_period is not None:
            self._join_all(grace_period)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        self._join_all(30 if grace_period is None else grace_period)
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
        self._report(failed)

    def _receive_what_came(self, rank):
        if rank in self._errors and self._errors[rank].poll():
            self._receive(rank)

    def _report(self, rank):
        process = self.processes[rank]
        if rank in self._tracebacks:
            message = f"\n\n-- Process {rank} terminated with the following error:\n{self._tracebacks[rank]}"
            raise ProcessRaisedException(message, rank, process.pid)
        code = process.exitcode
        if code >= 0:
            raise ProcessExitedException(f"process {rank} terminated with exit code {code}", rank, process.pid, code)
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"<Unknown signal {-code}>"
        raise ProcessExitedException(f"process {rank} terminated with signal {name}", rank, process.pid, code, name)


class SpawnContext(ProcessContext):
    """ProcessContext, by its older name."""

    def __init__(self, processes, errors):
        warnings.warn("SpawnContext is renamed to ProcessContext since 1.4 release.", stacklevel=2)
        super().__init__(processes, errors)


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Run fn(rank, *args) in nprocs processes; wait for them if told to join."""
    context = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for rank in range(nprocs):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, rank, args, sender, os.getpid()), daemon=daemon)
        process.start()
        sender.close()
        errors.append(receiver)
        processes.append(process)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """start_processes, each a fresh interpreter."""
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\nTo use a different start_method use:\n\t\t"
            " torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
