"""The processes of one machine: what watches them, and what ends them."""

import abc
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, field

from mica.distributed.elastic.multiprocessing.errors import ProcessFailure
from mica.distributed.elastic.multiprocessing.tail_log import TailLog
from mica.distributed.elastic.utils.logging import get_logger

logger = get_logger(__name__)


class SignalException(Exception):
    """Raised in the launcher's main thread when a signal tells it to end."""

    def __init__(self, msg, sigval):
        super().__init__(msg)
        self.sigval = sigval


class _Ending:
    """Whether processes are being ended: a signal that arrives then must not stop that. It makes it quicker."""

    active = hurried = False


_handlers_before = {}


def _terminate_process_handler(signum, frame):
    sigval = signal.Signals(signum)
    if _Ending.active:
        _Ending.hurried = True
        return
    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)


def _handle_signals():
    """Let the signals of TORCHELASTIC_SIGNALS_TO_HANDLE end the launcher in good order."""
    if threading.current_thread() is not threading.main_thread():
        logger.warning(
            "The launcher runs in a thread that is not the main one: it cannot pass on signals to processes."
        )
        return
    names = os.environ.get("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT")
    for name in names.split(","):
        try:
            number = getattr(signal, name.strip())
            before = signal.signal(number, _terminate_process_handler)
            if before is not _terminate_process_handler:
                _handlers_before[number] = before
        except (AttributeError, ValueError, OSError) as error:
            logger.warning("Failed to register signal handler for %s: %s", name, error)


def restore_signals():
    """Let signals do again what they did before processes were started."""
    if threading.current_thread() is threading.main_thread():
        while _handlers_before:
            signal.signal(*_handlers_before.popitem())


def _validate_full_rank(d, nprocs, what):
    actual, expected = set(d), set(range(nprocs))
    if actual != expected:
        raise RuntimeError(f"{what}, local rank mapping mismatch, expected: {expected}, actual: {actual}")


@dataclass
class RunProcsResult:
    """What has become of processes, by local rank."""

    return_values: dict = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)

    def is_failed(self):
        return len(self.failures) > 0


def _matches_any(needles):
    return lambda line: any(needle in line for needle in needles)


class PContext(abc.ABC):
    """The processes of one machine, which have been started together."""

    def __init__(
        self,
        name,
        entrypoint,
        args,
        envs,
        logs_specs,
        log_line_prefixes=None,
        duplicate_stdout_filters=None,
        duplicate_stderr_filters=None,
    ):
        self.name, self.entrypoint, self.args, self.envs, self.nprocs = name, entrypoint, args, envs, len(args)
        files = logs_specs.reify(envs)
        _validate_full_rank(files.stdouts, self.nprocs, "stdouts")
        _validate_full_rank(files.stderrs, self.nprocs, "stderrs")
        self.stdouts, self.stderrs, self.error_files = files.stdouts, files.stderrs, files.error_files
        self._tail_logs = [
            TailLog(name, files.tee_stdouts, sys.stdout, log_line_prefixes),
            TailLog(name, files.tee_stderrs, sys.stderr, log_line_prefixes),
        ]
        self.filtered_stdout = self._tail_filtered(
            duplicate_stdout_filters, files.filtered_stdout, files.tee_stdouts, log_line_prefixes
        )
        self.filtered_stderr = self._tail_filtered(
            duplicate_stderr_filters, files.filtered_stderr, files.tee_stderrs, log_line_prefixes
        )

    def _tail_filtered(self, needles, path, sources, prefixes):
        """A file of the lines of all ranks that hold one of the words."""
        if not needles:
            return None
        file = open(path, "w", errors="replace", buffering=1)  # noqa: SIM115  (close ends it)
        self._tail_logs.append(TailLog(self.name, sources, file, prefixes, log_line_filter=_matches_any(needles)))
        return file

    def start(self):
        """Start the processes, and show their output where that was asked for."""
        _handle_signals()
        self._start()
        for each in self._tail_logs:
            each.start()

    @abc.abstractmethod
    def _start(self):
        raise NotImplementedError

    @abc.abstractmethod
    def _poll(self):
        """The results of the processes, once all have succeeded or one has failed; None before that."""
        raise NotImplementedError

    @abc.abstractmethod
    def _waited_for(self):
        """What becomes ready when something has happened to a process."""
        raise NotImplementedError

    def wait_for_change(self, timeout):
        """Wait until a process ends, or for a time. Returns at once if one has ended."""
        watched = self._waited_for()
        if watched:
            multiprocessing.connection.wait(watched, timeout)

    def wait(self, timeout=-1, period=1):
        """The results of the processes, or None if they still run after that many seconds. A negative number is no limit."""
        end = None if timeout < 0 else time.monotonic() + timeout
        while (result := self._poll()) is None:
            left = period if end is None else min(period, end - time.monotonic())
            if left <= 0:
                return None
            self.wait_for_change(left)
        return result

    @abc.abstractmethod
    def pids(self):
        """Process ids by local rank."""
        raise NotImplementedError

    @abc.abstractmethod
    def _signal_all(self, death_sig):
        """Send a signal to the processes that still run."""
        raise NotImplementedError

    @abc.abstractmethod
    def _reap(self, seconds):
        """Wait for the processes to end. Returns those that still run, by local rank."""
        raise NotImplementedError

    def _close(self, death_sig, timeout=30):
        self._signal_all(death_sig)
        end = time.monotonic() + timeout
        while left := self._reap(min(0.05, max(end - time.monotonic(), 0))):
            if _Ending.hurried or time.monotonic() >= end:
                break
        if not left:
            return
        logger.warning("Processes %s did not end after %s: they get SIGKILL", sorted(left.values()), death_sig.name)
        self._signal_all(signal.SIGKILL)
        # A process that sleeps in the kernel, on a lost disk or device, cannot be killed. The launcher does not wait
        # for it for ever.
        end = time.monotonic() + max(timeout, 1)
        while (left := self._reap(0.05)) and time.monotonic() < end:
            pass
        if left:
            logger.error("Processes %s did not even end after SIGKILL: they are left alone", sorted(left.values()))

    def close(self, death_sig=None, timeout=30):
        """End the processes: by a signal, and by SIGKILL if that has not helped after a time."""
        _Ending.active = True
        try:
            self._close(death_sig=signal.Signals(death_sig or signal.SIGTERM), timeout=timeout)
        finally:
            _Ending.active = _Ending.hurried = False
        for each in self._tail_logs:
            each.stop()
        for file in (self.filtered_stdout, self.filtered_stderr):
            if file:
                file.close()

    def _failed(self, failures):
        first = min(failures.values(), key=lambda failure: failure._time)
        logger.error(
            "failed (exitcode: %s) local_rank: %s (pid: %s) of binary: %s",
            first.exitcode, first.local_rank, first.pid, self.entrypoint,
        )  # fmt: skip
        return RunProcsResult(failures=failures, stdouts=self.stdouts, stderrs=self.stderrs)


def get_std_cm(std_rd, redirect_fn):
    """The context in which a stream goes to a file, if one is named."""
    return redirect_fn(std_rd) if std_rd else nullcontext()
