"""The profiler, by the module that torch has it in."""

from mica.profiler import ProfilerAction, profile, schedule, supported_activities, tensorboard_trace_handler  # noqa: F401


def _default_schedule_fn(_):
    """Record every step."""
    return ProfilerAction.RECORD
