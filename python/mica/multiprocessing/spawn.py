"""Starts a function in many processes and reports the first that fails."""

import multiprocessing
import multiprocessing.connection
import signal
import sys
import traceback


class ProcessException(Exception):
    """A process that was started has failed."""

    def __init__(self, msg, error_index, pid):
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = pid

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """A process ended because of an exception."""


class ProcessExitedException(ProcessException):
    """A process was killed by a signal, or ended with an exit code."""

    def __init__(self, msg, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(fn, rank, args, errors):
    try:
        fn(rank, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.send(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """The processes that were started."""

    def __init__(self, processes, errors):
        self.processes = processes
        self._errors = errors
        self._running = {process.sentinel: rank for rank, process in enumerate(processes)}

    def pids(self):
        return [process.pid for process in self.processes]

    def join(self, timeout=None, grace_period=None):
        """Wait for the processes: True when all have ended well. If one fails, the others are ended and it is reported."""
        if not self._running:
            return True
        failed = None
        for sentinel in multiprocessing.connection.wait(self._running, timeout):
            rank = self._running.pop(sentinel)
            self.processes[rank].join()
            if self.processes[rank].exitcode != 0 and failed is None:
                failed = rank
        if failed is None:
            return not self._running
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(grace_period or 5)
            if process.is_alive():
                process.kill()
                process.join()
        self._running = {}
        self._report(failed)

    def _report(self, rank):
        process = self.processes[rank]
        if self._errors[rank].poll():
            message = f"\n\n-- Process {rank} terminated with the following error:\n{self._errors[rank].recv()}"
            raise ProcessRaisedException(message, rank, process.pid)
        code = process.exitcode
        if code < 0:
            name = signal.Signals(-code).name
            raise ProcessExitedException(f"process {rank} terminated with signal {name}", rank, process.pid, code, name)
        raise ProcessExitedException(f"process {rank} terminated with exit code {code}", rank, process.pid, code)


SpawnContext = ProcessContext


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Run fn(rank, *args) in nprocs processes; wait for them if told to join."""
    context = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for rank in range(nprocs):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, rank, args, sender), daemon=daemon)
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
    return start_processes(fn, args, nprocs, join, daemon, start_method)
