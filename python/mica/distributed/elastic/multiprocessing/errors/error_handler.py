"""The file in which a process leaves the exception that ended it."""

import contextlib
import faulthandler
import json
import os
import time
import traceback
import warnings

from mica.distributed.elastic.utils.logging import get_logger

__all__ = ["ErrorHandler"]

logger = get_logger(__name__)


class ErrorHandler:
    """Writes exceptions as JSON to the file that TORCHELASTIC_ERROR_FILE names, if it names one."""

    def _get_error_file_path(self):
        return os.environ.get("TORCHELASTIC_ERROR_FILE")

    def initialize(self):
        """Called before the program: crashes of the interpreter print where each thread was."""
        try:
            faulthandler.enable(all_threads=True)
        except Exception as error:  # stderr may be no file
            warnings.warn(f"Unable to enable fault handler. {type(error).__name__}: {error}", stacklevel=2)

    def _write_error_file(self, file_path, error_msg):
        try:
            with open(file_path, "w") as file:
                file.write(error_msg)
        except Exception as error:
            warnings.warn(f"Unable to write error to file. {type(error).__name__}: {error}", stacklevel=2)

    def record_exception(self, e):
        """Write what was raised, its traceback and the time."""
        path = self._get_error_file_path()
        if not path:
            return
        now = time.time()
        # torch's readers expect whole seconds; "time" tells which of two failures in one second came first.
        extra = {
            "py_callstack": "".join(traceback.format_exception(e)),
            "timestamp": str(int(now)),
            "time": now,
        }
        data = {"message": {"message": f"{type(e).__name__}: {e}", "extraInfo": extra}}
        with open(path, "w") as file:
            json.dump(data, file)

    def override_error_code_in_rootcause_data(self, rootcause_error_file, rootcause_error, error_code=0):
        """Put the exit code into the error file of a child, which could not know it."""
        message = rootcause_error.get("message")
        if isinstance(message, dict):
            message["errorCode"] = error_code
        else:
            logger.warning(
                "the error file %s holds no structured message: its error code is left alone", rootcause_error_file
            )

    def dump_error_file(self, rootcause_error_file, error_code=0):
        """Copy a child's error file to this process's own, for whoever has started this process."""
        with open(rootcause_error_file) as file:
            error = json.load(file)
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, error, error_code)
        own = self._get_error_file_path()
        if not own:
            logger.info("this process has no error file of its own to copy %s to", rootcause_error_file)
            return
        self._rm(own)
        self._write_error_file(own, json.dumps(error))

    def _rm(self, my_error_file):
        with contextlib.suppress(FileNotFoundError):
            os.remove(my_error_file)


def record_uncaught():
    """Let an exception that nobody catches be recorded, also where the program has no @record: the launcher then
    shows the traceback of the rank that failed first."""
    import sys

    path, shown = os.environ.get("TORCHELASTIC_ERROR_FILE"), sys.excepthook
    if not path or getattr(shown, "_records_errors", False):
        return
    process = os.getpid()

    def record_and_show(kind, error, trace):
        # A forked child has the same variable, but the file belongs to the process that was launched.
        if os.getpid() == process and isinstance(error, Exception) and not os.path.exists(path):
            with contextlib.suppress(OSError, TypeError, ValueError):
                ErrorHandler().record_exception(error.with_traceback(trace))
        shown(kind, error, trace)

    record_and_show._records_errors = True
    sys.excepthook = record_and_show
