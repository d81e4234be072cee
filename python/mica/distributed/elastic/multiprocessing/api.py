"""The processes of one machine, by the module that torch has them in."""

from mica.distributed.elastic.multiprocessing.contexts import MultiprocessContext, SubprocessContext
from mica.distributed.elastic.multiprocessing.logs import DefaultLogsSpecs, LogsDest, LogsSpecs, Std, to_map
from mica.distributed.elastic.multiprocessing.process_context import (
    PContext,
    RunProcsResult,
    SignalException,
    _terminate_process_handler,  # noqa: F401
    _validate_full_rank,  # noqa: F401
    get_std_cm,
)

__all__ = [
    "DefaultLogsSpecs",
    "LogsDest",
    "LogsSpecs",
    "MultiprocessContext",
    "PContext",
    "RunProcsResult",
    "SignalException",
    "Std",
    "SubprocessContext",
    "get_std_cm",
    "to_map",
]
