"""Events that a program logs about itself, and statistics of its numbers that are logged from time to time."""

import datetime
import enum
import math
import time

__all__ = [
    "STAT_EVENT",
    "Aggregation",
    "Event",
    "EventHandlerHandle",
    "Stat",
    "TensorboardEventHandler",
    "data_value_t",
    "log_event",
    "register_event_handler",
    "unregister_event_handler",
]

STAT_EVENT = "torch.monitor.Stat"

data_value_t = str | int | float | bool
_handlers = {}


class Aggregation(enum.Enum):
    """What a `Stat` tells of its numbers."""

    VALUE = 0
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6


VALUE, MEAN, COUNT, SUM, MAX, MIN = Aggregation


class Event:
    """What has happened: a name, the time, and a dict of texts and numbers."""

    def __init__(self, name, timestamp, data):
        if not isinstance(name, str) or not isinstance(timestamp, datetime.datetime):
            raise TypeError(
                f"Event takes a name, a datetime and a dict, got {type(name).__name__}, {type(timestamp).__name__}"
            )
        for key, value in data.items():
            if not isinstance(key, str) or not isinstance(value, data_value_t):
                raise TypeError(f"Event: data has texts and numbers by names, got {key!r}: {value!r}")
        self.name, self.timestamp, self.data = name, timestamp, dict(data)


class EventHandlerHandle:
    """Stands for a function that is called with each event."""


def register_event_handler(callback):
    """Call a function with each event that is logged; `unregister_event_handler` takes the result."""
    if not callable(callback):
        raise TypeError(f"register_event_handler() takes a function of an event, got {type(callback).__name__}")
    handle = EventHandlerHandle()
    _handlers[handle] = callback
    return handle


def unregister_event_handler(handler):
    """Call a function no longer, by what `register_event_handler` returned."""
    _handlers.pop(handler, None)


def log_event(event):
    """Hand an event to all functions that are registered."""
    if not isinstance(event, Event):
        raise TypeError(f"log_event() takes an Event, got {type(event).__name__}")
    for callback in list(_handlers.values()):
        callback(event)


class Stat:
    """Collects numbers, and logs what they come to at the end of each window of time: an event `torch.monitor.Stat`.

    With `max_samples` the event is logged as soon as there are so many numbers, and the further ones of the window
    are left out. Events are logged by `add`; a window without numbers logs none.

    Example::

        stat = Stat("loss", (Aggregation.MEAN,), datetime.timedelta(seconds=60))
        stat.add(0.5)
    """

    def __init__(self, name, aggregations, window_size, max_samples=None):
        if not isinstance(window_size, datetime.timedelta):
            raise TypeError(f"Stat: window_size is a timedelta, got {type(window_size).__name__}")
        self.name, self._aggregations = name, list(dict.fromkeys(aggregations))
        self._window = max(window_size.total_seconds(), 1e-3)
        self._most = math.inf if max_samples is None else max_samples
        self._values, self._told = [], dict.fromkeys(self._aggregations, 0.0)
        self._number, self._is_full = self._window_now(), False

    def _window_now(self):
        return math.floor(time.monotonic() / self._window)

    @property
    def count(self):
        """How many numbers the open window has."""
        return len(self._values)

    def add(self, v):
        """Add a number."""
        now = self._window_now()
        if now != self._number:
            self._close()
            self._number, self._is_full = now, False
        if self._is_full:
            return
        self._values.append(float(v))
        if len(self._values) >= self._most:
            self._close()
            self._is_full = True

    def get(self):
        """What the numbers of the last window that was closed come to, by aggregation; zeros before."""
        return dict(self._told)

    def _close(self):
        if not self._values:
            return
        found = {
            SUM: sum, COUNT: lambda values: float(len(values)), MAX: max, MIN: min, VALUE: lambda values: values[-1],
            MEAN: lambda values: sum(values) / len(values),
        }  # fmt: skip
        self._told = {each: found[each](self._values) for each in self._aggregations}
        self._values = []
        data = {f"{self.name}.{each.name.lower()}": value for each, value in self._told.items()}
        log_event(Event(STAT_EVENT, datetime.datetime.now(), data))

    def __del__(self):
        self._close()


class TensorboardEventHandler:
    """Writes the events of `Stat` into a `SummaryWriter`: a curve for each number.

    Example::

        register_event_handler(TensorboardEventHandler(SummaryWriter("runs")))
    """

    def __init__(self, writer):
        self._writer = writer

    def __call__(self, event):
        if event.name == STAT_EVENT:
            for name, value in event.data.items():
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())
