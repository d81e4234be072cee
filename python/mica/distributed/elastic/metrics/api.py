"""Numbers that a launcher reports, and handlers that take them."""

import abc
import time
import warnings
from collections import namedtuple
from functools import wraps

__all__ = [
    "ConsoleMetricHandler",
    "MetricData",
    "MetricHandler",
    "MetricStream",
    "MetricsConfig",
    "NullMetricHandler",
    "configure",
    "getStream",
    "get_elapsed_time_ms",
    "prof",
    "profile",
    "publish_metric",
    "put_metric",
]

MetricData = namedtuple("MetricData", ["timestamp", "group_name", "name", "value"])


class MetricsConfig:
    __slots__ = ["params"]

    def __init__(self, params=None):
        self.params = {} if params is None else params


class MetricHandler(abc.ABC):
    """Takes numbers."""

    @abc.abstractmethod
    def emit(self, metric_data):
        """Take one."""


class ConsoleMetricHandler(MetricHandler):
    """Prints numbers."""

    def emit(self, metric_data):
        print(f"[{metric_data.timestamp}][{metric_data.group_name}]: {metric_data.name}={metric_data.value}")


class NullMetricHandler(MetricHandler):
    """Drops numbers: the default."""

    def emit(self, metric_data):
        """Drop it."""


class MetricStream:
    """The numbers of a group."""

    def __init__(self, group_name, handler):
        self.group_name, self.handler = group_name, handler

    def add_value(self, metric_name, metric_value):
        self.handler.emit(MetricData(time.time(), self.group_name, metric_name, metric_value))


_default = NullMetricHandler()
_by_group = {}


def configure(handler, group=None):
    """Let a handler take the numbers of a group, or of all groups that have none of their own."""
    global _default
    if group is None:
        _default = handler
    else:
        _by_group[group] = handler


def getStream(group):
    return MetricStream(group, _by_group.get(group, _default))


def _get_metric_name(fn):
    if "." in fn.__qualname__ or not fn.__module__:
        return fn.__qualname__
    return f"{fn.__module__.split('.')[-1]}.{fn.__qualname__}"


def _measured(function, name, put):
    @wraps(function)
    def wrapper(*args, **kwargs):
        start = time.time()
        try:
            result = function(*args, **kwargs)
            put(f"{name}.success", 1)
            return result
        except Exception:
            put(f"{name}.failure", 1)
            raise
        finally:
            put(f"{name}.duration.ms", get_elapsed_time_ms(start))

    return wrapper


def prof(fn=None, group="torchelastic"):
    """Decorates a function: how long it takes and whether it succeeds are reported."""

    def wrap(function):
        return _measured(function, _get_metric_name(function), lambda name, value: put_metric(name, value, group))

    return wrap(fn) if fn else wrap


def profile(group=None):
    """prof, by its older name."""
    warnings.warn("Deprecated, use `@prof` instead", FutureWarning, stacklevel=2)

    def wrap(function):
        return _measured(function, function.__name__, lambda name, value: getStream(group).add_value(name, value))

    return wrap


def put_metric(metric_name, metric_value, metric_group="torchelastic"):
    getStream(metric_group).add_value(metric_name, metric_value)


def publish_metric(metric_group, metric_name, metric_value):
    warnings.warn(
        "Deprecated, use `put_metric(metric_group)(metric_name, metric_value)` instead", FutureWarning, stacklevel=2
    )
    getStream(metric_group).add_value(metric_name, metric_value)


def get_elapsed_time_ms(start_time_in_seconds):
    return int((time.time() - start_time_in_seconds) * 1000)
