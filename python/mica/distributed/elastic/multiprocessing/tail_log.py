"""Shows on the console what processes write to their files."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from mica.distributed.elastic.utils.logging import get_logger

__all__ = ["TailLog", "tail_logfile"]

logger = get_logger(__name__)


def tail_logfile(header, file, dst, finished, interval_sec, log_line_filter=None):
    """Write the lines of a file that grows, each after a header, until it is finished and read to its end."""
    while not os.path.exists(file):
        if finished.wait(interval_sec) and not os.path.exists(file):
            return
    with open(file, "rb") as source:
        begun = b""
        while True:
            # Asked before reading, so that everything that was written before the end is read.
            over = finished.is_set()
            while line := source.readline():
                begun += line
                if line.endswith(b"\n"):
                    _show(begun, header, dst, log_line_filter)
                    begun = b""
            if over:
                break
            finished.wait(interval_sec)
        if begun:
            _show(begun + b"\n", header, dst, log_line_filter)
    dst.flush()


def _show(line, header, dst, log_line_filter):
    # Only whole lines are decoded: a process may have written half a letter so far.
    line = line.decode(errors="replace")
    if log_line_filter is None or log_line_filter(line):
        dst.write(f"{header}{line}")
        dst.flush()


class TailLog:
    """Follows files, one thread for each. A line begins with [<name><local rank>]: unless told otherwise."""

    def __init__(self, name, log_files, dst, log_line_prefixes=None, interval_sec=0.1, log_line_filter=None):
        self._name, self._log_files, self._dst = name, log_files, dst
        self._prefixes, self._interval_sec, self._filter = log_line_prefixes or {}, interval_sec, log_line_filter
        self._finished, self._stopped = Event(), False
        self._threads = ThreadPoolExecutor(len(log_files), f"TailLog_{name}") if log_files else None
        self._running = []

    def start(self):
        if self._threads is None or not self._dst:
            return self
        for rank, file in self._log_files.items():
            header = self._prefixes.get(rank, f"[{self._name}{rank}]:")
            self._running.append(
                self._threads.submit(
                    tail_logfile, header, file, self._dst, self._finished, self._interval_sec, self._filter
                )
            )
        return self

    def stop(self):
        """Read the files to their end, and no further."""
        self._finished.set()
        for each in self._running:
            try:
                each.result()
            except Exception:
                logger.exception("the output of a process of %s could not be shown", self._name)
        if self._threads is not None:
            self._threads.shutdown(wait=True)
        self._stopped = True

    def stopped(self):
        return self._stopped
