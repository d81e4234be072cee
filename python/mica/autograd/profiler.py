"""Wall time of named ranges of a program."""

import functools
import threading
import time

__all__ = ["EventList", "FunctionEvent", "profile", "record_function"]

_active = []  # profiles that are collecting, in any thread
_nesting = threading.local()


class FunctionEvent:
    """One range that ran: its name, when, for how long (in microseconds) and within which other one."""

    def __init__(self, name, start_ns, parent):
        self.name = name
        self.start_ns = start_ns
        self.end_ns = start_ns
        self.cpu_parent = parent
        self.cpu_children = []
        self.thread = threading.get_ident()
        if parent is not None:
            parent.cpu_children.append(self)

    @property
    def key(self):
        return self.name

    @property
    def cpu_time_total(self):
        return (self.end_ns - self.start_ns) / 1000

    @property
    def self_cpu_time_total(self):
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    def __repr__(self):
        return f"<FunctionEvent name={self.name} cpu_time={self.cpu_time_total:.3f}us thread={self.thread}>"


class _Average:
    """All events of one name, added up."""

    def __init__(self, key):
        self.key = key
        self.count = 0
        self.cpu_time_total = 0.0
        self.self_cpu_time_total = 0.0

    def add(self, event):
        self.count += 1
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total

    @property
    def cpu_time(self):
        return self.cpu_time_total / self.count if self.count else 0.0


class EventList(list):
    """Events or their averages, which can be shown as a table."""

    def table(self, sort_by=None, row_limit=100, max_name_column_width=55):
        rows = list(self)
        if sort_by is not None:
            rows.sort(key=lambda row: getattr(row, sort_by), reverse=True)
        rows = rows[:row_limit] if row_limit >= 0 else rows
        total = sum(row.self_cpu_time_total for row in self) or 1.0
        width = min(max([4, *(len(row.key) for row in rows)]), max_name_column_width)
        lines = [f"{'Name':<{width}}  {'Self CPU %':>10}  {'Self CPU':>12}  {'CPU total':>12}  {'# of Calls':>10}"]
        for row in rows:
            name = row.key if len(row.key) <= width else row.key[: width - 3] + "..."
            share = f"{100 * row.self_cpu_time_total / total:.2f}%"
            lines.append(
                f"{name:<{width}}  {share:>10}  {row.self_cpu_time_total:>10.3f}us  {row.cpu_time_total:>10.3f}us  "
                f"{getattr(row, 'count', 1):>10}"
            )
        lines.append(f"Self CPU time total: {sum(row.self_cpu_time_total for row in self):.3f}us")
        return "\n".join(lines)

    def __str__(self):
        return self.table()


class record_function:
    """Give a range of the program a name: as a context manager or as a decorator. Costs little while nobody profiles."""

    def __init__(self, name, args=None):
        self.name = name
        self.args = args
        self._event = None

    def __enter__(self):
        if _active:
            parent = getattr(_nesting, "innermost", None)
            self._event = _nesting.innermost = FunctionEvent(self.name, time.perf_counter_ns(), parent)
        return self

    def __exit__(self, *exception):
        event, self._event = self._event, None
        if event is None:
            return
        event.end_ns = time.perf_counter_ns()
        _nesting.innermost = event.cpu_parent
        for collecting in list(_active):
            if collecting._start_ns <= event.start_ns:
                collecting._events.append(event)

    def __call__(self, function):
        @functools.wraps(function)
        def named(*args, **kwargs):
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return named


class profile:
    """Collects the ranges that run while its `with` block does, in all threads."""

    def __init__(self, enabled=True, **options):
        self.enabled = enabled
        self._events = []
        self._start_ns = 0

    def __enter__(self):
        if self.enabled:
            self._start_ns = time.perf_counter_ns()
            _active.append(self)
        return self

    def __exit__(self, *exception):
        if self.enabled:
            _active.remove(self)
            self._events.sort(key=lambda event: event.start_ns)

    @property
    def function_events(self):
        return EventList(self._events)

    def key_averages(self, **grouping):
        averages = {}
        for event in self._events:
            averages.setdefault(event.name, _Average(event.name)).add(event)
        return EventList(averages.values())

    def total_average(self):
        total = _Average("Total")
        for event in self._events:
            total.add(event)
        return total

    @property
    def self_cpu_time_total(self):
        return sum(event.self_cpu_time_total for event in self._events)

    def table(self, **options):
        return self.key_averages().table(**options)

    def __str__(self):
        return self.table()
