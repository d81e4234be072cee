"""Events that a program logs, and statistics of its numbers."""

import datetime
import time

import pytest
from mica import monitor
from mica.monitor import Aggregation, Event, Stat


@pytest.fixture
def events():
    found = []
    handle = monitor.register_event_handler(lambda event: found.append((event.name, dict(event.data))))
    yield found
    monitor.unregister_event_handler(handle)


def test_events_go_to_those_that_are_registered(events):
    event = Event(name="a", timestamp=datetime.datetime.fromtimestamp(5), data={"x": 1, "y": 2.5, "z": "text"})
    monitor.log_event(event)
    assert events == [("a", {"x": 1, "y": 2.5, "z": "text"})]
    handle = monitor.register_event_handler(lambda event: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        monitor.log_event(event)
    monitor.unregister_event_handler(handle)
    monitor.unregister_event_handler(handle)
    monitor.log_event(event)


def test_what_is_no_event_is_refused():
    for arguments in (("a", 5, {}), ("a", datetime.datetime.now(), {"q": [1]}), ("a", datetime.datetime.now())):
        with pytest.raises(TypeError):
            Event(*arguments)
    with pytest.raises(TypeError):
        monitor.log_event(5)
    with pytest.raises(TypeError):
        monitor.register_event_handler(5)


def test_a_statistic_of_so_many_numbers(events):
    kinds = [Aggregation.SUM, Aggregation.COUNT, Aggregation.MAX, Aggregation.MIN, Aggregation.MEAN]
    stat = Stat("loss", kinds, datetime.timedelta(days=100000), 3)
    for number in (1, -2.5):
        stat.add(number)
    assert stat.count == 2 and set(stat.get().values()) == {0.0} and not events
    stat.add(7)
    assert stat.count == 0 and stat.get() == dict(zip(kinds, (5.5, 3.0, 7.0, -2.5, 5.5 / 3), strict=True))
    assert events == [
        (
            "torch.monitor.Stat",
            {"loss.sum": 5.5, "loss.count": 3.0, "loss.max": 7.0, "loss.min": -2.5, "loss.mean": 5.5 / 3},
        )
    ]
    stat.add(9)  # left out, as the window is still the same
    assert stat.count == 0 and len(events) == 1
    last = Stat("last", (Aggregation.VALUE,), datetime.timedelta(days=100000), 2)
    last.add(1)
    last.add(2)
    assert last.get() == {Aggregation.VALUE: 2.0}


def test_a_statistic_of_a_window_of_time(events):
    stat = Stat("w", (Aggregation.COUNT,), datetime.timedelta(milliseconds=50))
    stat.add(1)
    time.sleep(0.06)
    assert stat.count == 1 and not events
    stat.add(2)
    assert stat.count == 1 and stat.get() == {Aggregation.COUNT: 1.0}
    del stat
    assert events == [("torch.monitor.Stat", {"w.count": 1.0})] * 2


def test_statistics_become_curves():
    drawn = []

    class Writer:
        def add_scalar(self, name, value, walltime):
            drawn.append((name, value, walltime))

    handle = monitor.register_event_handler(monitor.TensorboardEventHandler(Writer()))
    when = datetime.datetime.fromtimestamp(1000)
    monitor.log_event(Event(monitor.STAT_EVENT, when, {"a": 1.5}))
    monitor.log_event(Event("other", when, {"b": 1.5}))
    monitor.unregister_event_handler(handle)
    assert drawn == [("a", 1.5, 1000.0)]
