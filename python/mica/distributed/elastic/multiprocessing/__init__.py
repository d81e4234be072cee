"""Processes of a program or of a function: started together, watched together, ended together."""

from mica.distributed.elastic.multiprocessing.contexts import MultiprocessContext, SubprocessContext
from mica.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure, record
from mica.distributed.elastic.multiprocessing.logs import DefaultLogsSpecs, LogsDest, LogsSpecs, Std, to_map
from mica.distributed.elastic.multiprocessing.process_context import (
    PContext,
    RunProcsResult,
    SignalException,
    _validate_full_rank,
)

__all__ = [
    "ChildFailedError",
    "DefaultLogsSpecs",
    "LogsDest",
    "LogsSpecs",
    "MultiprocessContext",
    "PContext",
    "ProcessFailure",
    "RunProcsResult",
    "SignalException",
    "Std",
    "SubprocessContext",
    "record",
    "start_processes",
    "to_map",
]


def start_processes(
    name,
    entrypoint,
    args,
    envs,
    logs_specs,
    log_line_prefixes=None,
    start_method="spawn",
    numa_options=None,
    duplicate_stdout_filters=None,
    duplicate_stderr_filters=None,
):
    """Start one process for each local rank: of a command if `entrypoint` is a string, else of a function."""
    _validate_full_rank(args, len(args), "args")
    _validate_full_rank(envs, len(args), "envs")
    options = {
        "name": name,
        "entrypoint": entrypoint,
        "args": args,
        "envs": envs,
        "logs_specs": logs_specs,
        "log_line_prefixes": log_line_prefixes,
        "numa_options": numa_options,
        "duplicate_stdout_filters": duplicate_stdout_filters,
        "duplicate_stderr_filters": duplicate_stderr_filters,
    }
    if isinstance(entrypoint, str):
        context = SubprocessContext(**options)
    else:
        context = MultiprocessContext(start_method=start_method, **options)
    try:
        context.start()
    except BaseException:
        context.close()
        raise
    return context
