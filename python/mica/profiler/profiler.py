"""The profiler, by the module that torch has it in."""

from mica.profiler import (  # noqa: F401
    ExecutionTraceObserver,
    ProfilerAction,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)


def _default_schedule_fn(_):
    """Record every step."""
    return ProfilerAction.RECORD
