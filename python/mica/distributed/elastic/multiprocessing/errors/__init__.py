"""What becomes of a process's failure: a file with its traceback, and an error in the launcher that names the rank."""

import json
import os
import signal
import socket
import time
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps

from mica.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler
from mica.distributed.elastic.multiprocessing.errors.handlers import get_error_handler
from mica.distributed.elastic.utils.logging import get_logger

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]

logger = get_logger(__name__)
_NOT_AVAILABLE = "<N/A>"
_NO_TRACEBACK = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


@dataclass
class ProcessFailure:
    """How a process has failed: its exit code, and what its error file says if it has left one."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict = field(init=False)
    message: str = field(init=False)
    timestamp: int = field(init=False)

    def __post_init__(self):
        self._time = time.time()
        self.error_file_data, self.message, self.timestamp = {"message": "<NONE>"}, "", int(self._time)
        if os.path.isfile(self.error_file):
            self._read()
        else:
            self.error_file = _NOT_AVAILABLE
        if self.message:
            return
        if self.exitcode < 0:
            self.message = f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        else:
            self.error_file_data["errorTraits"] = {
                "category": "system_terminated_error",
                "retryability": "False",
            }
            self.message = _NO_TRACEBACK

    def _read(self):
        try:
            with open(self.error_file) as file:
                data = json.load(file)
            self.message = data["message"]
            if isinstance(self.message, str):
                self.timestamp = self._time = int(data.get("timestamp", 0))
            else:
                extra = self.message["extraInfo"]
                self.timestamp = int(extra["timestamp"])
                self._time = float(extra.get("time", self.timestamp))
            self.error_file_data = data
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            # A process that was killed while it wrote leaves an incomplete file.
            logger.exception("the error file %s cannot be read", self.error_file)

    def signal_name(self):
        try:
            return signal.Signals(-self.exitcode).name
        except ValueError:
            return _NOT_AVAILABLE

    def timestamp_isoformat(self):
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")


class ChildFailedError(Exception):
    """Processes have failed. The text shows all failures, the first one last."""

    def __init__(self, name, failures):
        assert failures
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def get_first_failure(self):
        """The rank that failed first, and how."""
        rank = min(self.failures, key=lambda rank: self.failures[rank]._time)
        return rank, self.failures[rank]

    def format_msg(self, boarder_delim="=", section_delim="-"):
        title = f"{self.name} FAILED"
        first, _ = self.get_first_failure()
        texts = {
            rank: self._format_failure(place, rank, each) for place, (rank, each) in enumerate(self.failures.items())
        }
        lines = [title, *(line for text in texts.values() for line in text.split("\n"))]
        width = min(max(map(len, lines)), 60)
        border, section = boarder_delim * width, section_delim * width
        others = [text for rank, text in texts.items() if rank != first] or ["  <NO_OTHER_FAILURES>"]
        return "\n".join(
            [
                "",
                border,
                title,
                section,
                "Failures:",
                *others,
                section,
                "Root Cause (first observed failure):",
                texts[first],
                border,
            ]
        )

    def _format_failure(self, idx, rank, failure):
        message = failure.message
        if isinstance(message, dict):
            message = message.get("extraInfo", {}).get("py_callstack", message.get("message", _NOT_AVAILABLE))
            message = message.replace("\n", "\n  ")
        name = failure.signal_name() if failure.exitcode < 0 else _NOT_AVAILABLE
        return "\n".join(
            [
                f"[{idx}]:",
                f"  time      : {failure.timestamp_isoformat()}",
                f"  host      : {socket.getfqdn()}",
                f"  rank      : {rank} (local_rank: {failure.local_rank})",
                f"  exitcode  : {failure.exitcode} (pid: {failure.pid}) {'' if name == _NOT_AVAILABLE else f' ({name})'}",
                f"  error_file: {failure.error_file}",
                f"  traceback : {message}",
            ]
        )


def record(fn, error_handler=None):
    """Decorates a program's main function: what it raises is written to the error file of the process."""
    handler = error_handler or get_error_handler()

    @wraps(fn)
    def wrapper(*args, **kwargs):
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as end:
            if end.code == 0:  # the program of a function has ended well, and the process continues
                return None
            raise
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            if failure.error_file != _NOT_AVAILABLE:
                handler.dump_error_file(failure.error_file, failure.exitcode)
            raise
        except Exception as error:
            handler.record_exception(error)
            raise

    return wrapper
