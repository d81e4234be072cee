"""Loggers of the launcher: warnings to stderr, and more of it where LOGLEVEL asks for it."""

import inspect
import logging
import os

from mica.distributed.elastic.utils.log_level import get_log_level


class _ToStderr(logging.StreamHandler):
    """Writes to what sys.stderr is at that moment."""

    def emit(self, record):
        import sys

        self.stream = sys.stderr
        super().emit(record)


def get_logger(name=None):
    """The logger of a module, by default the caller's."""
    log = logging.getLogger(name or _derive_module_name(depth=2))
    log.setLevel(os.environ.get("LOGLEVEL", get_log_level()))
    if not log.handlers:
        handler = _ToStderr()
        handler.setFormatter(
            logging.Formatter(
                "%(levelname).1s%(asctime)s.%(msecs)03d %(process)d %(name)s:%(lineno)d] %(message)s", "%m%d %H:%M:%S"
            )
        )
        log.addHandler(handler)
    return log


def _derive_module_name(depth=1):
    try:
        frame = inspect.stack()[depth]
        module = inspect.getmodule(frame[0])
        return module.__name__ if module else os.path.splitext(os.path.basename(frame[1]))[0]
    except Exception:
        return None
