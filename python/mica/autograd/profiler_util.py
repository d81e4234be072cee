"""What a profiler shows: events, their averages, tables and traces."""

import os
from collections import defaultdict, namedtuple

from mica.autograd._profile_times import (
    DeviceType,
    Interval,
    Kernel,
    _format_memory,
    _format_share,
    _format_time,
    _Times,
)

__all__ = ["DeviceType", "EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel"]


class FunctionEvent(_Times):
    """One operation, backward node or named range that ran. Times are in microseconds, memory in bytes."""

    count = 1

    def __init__(
        self,
        id,
        name,
        thread,
        start_us,
        end_us,
        overload_name=None,
        fwd_thread=None,
        input_shapes=None,
        stack=None,
        scope=0,
        use_device=None,
        cpu_memory_usage=0,
        device_memory_usage=0,
        is_async=False,
        is_remote=False,
        sequence_nr=-1,
        node_id=-1,
        device_type=DeviceType.CPU,
        device_index=0,
        trace_name=None,
        is_user_annotation=False,
        input_dtypes=None,
    ):
        self.id, self.node_id = id, node_id
        self.name = self.key = name
        self.trace_name = name if trace_name is None else trace_name
        self.kind = "range" if is_user_annotation else "operation"
        self.thread, self.fwd_thread = thread, fwd_thread
        self.time_range = Interval(start_us, end_us)
        self.overload_name, self.scope, self.use_device = overload_name, scope, use_device
        self.device_type, self.device_index = device_type, device_index
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.is_async, self.is_remote, self.is_user_annotation = is_async, is_remote, is_user_annotation
        self.input_shapes = input_shapes or []
        self.input_dtypes = input_dtypes or []
        self.result_shapes = []
        self.sequence_nr = sequence_nr
        self.stack = stack or []
        self.cpu_parent = None
        self.cpu_children = []
        self.kernels = []  # what a GPU ran for this event, without its children

    @classmethod
    def _of_row(cls, number, row, origin_ns):
        """An event as the engine recorded it."""
        name, kind, _, thread, start, end, memory, shapes, dtypes, results, stack, sequence = row
        event = cls(number, name, thread, (start - origin_ns) / 1000, (end - origin_ns) / 1000)
        event.kind, event.is_user_annotation = kind, kind == "range"
        event.cpu_memory_usage, event.sequence_nr = memory, sequence
        event.input_shapes = [list(shape) for shape in shapes]
        event.input_dtypes = list(dtypes)
        event.result_shapes = [None if shape is None else list(shape) for shape in results]
        event.stack = _frames(stack)
        return event

    def append_cpu_child(self, child):
        """Note an event that ran within this one."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent):
        """Note the event that this one ran within."""
        self.cpu_parent = parent

    @property
    def cpu_time_total(self):
        return self.time_range.elapsed_us()

    @property
    def self_device_time_total(self):
        return sum(kernel.duration for kernel in self.kernels)

    @property
    def device_time_total(self):
        return self.self_device_time_total + sum(child.device_time_total for child in self.cpu_children)

    @property
    def self_cpu_time_total(self):
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def self_cpu_memory_usage(self):
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    @property
    def flops(self):
        from mica.utils._flop_formulas import flops_of_event

        return flops_of_event(self)

    def __repr__(self):
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} "
            f"cpu_start={self.time_range.start:.3f}us cpu_end={self.time_range.end:.3f}us thread={self.thread} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>"
        )


def _frames(text):
    """The stack as torch gives it: innermost first, one line a frame."""
    lines = text.splitlines()
    frames = []
    for line in reversed(lines):
        parts = line.strip().split(", ")
        if line.startswith("  File ") and len(parts) == 3:
            path = parts[0].removeprefix("File ").strip('"')
            frames.append(f"{path}({parts[1].removeprefix('line ')}): {parts[2].removeprefix('in ')}")
    return [frame for frame in frames if not _is_own(frame)]


def _is_own(frame):
    return os.path.dirname(os.path.dirname(__file__)) in frame and "/autograd/profiler" in frame


class FunctionEventAvg(_Times):
    """All events of one key, added up."""

    def __init__(self):
        self.key = None
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0
        self.device_time_total = self.self_device_time_total = 0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.input_shapes = self.overload_name = None
        self.stack = []
        self.flops = 0
        self.is_user_annotation = False

    def add(self, other):
        """Add an event, or another average, that has the same key."""
        if self.key is None:
            self.key = other.key
            self.input_shapes, self.overload_name = other.input_shapes, other.overload_name
            self.stack = other.stack
            self.is_user_annotation = other.is_user_annotation
            self.device_type = other.device_type
        self.count += other.count
        self.cpu_time_total += other.cpu_time_total
        self.self_cpu_time_total += other.self_cpu_time_total
        self.device_time_total += other.device_time_total
        self.self_device_time_total += other.self_device_time_total
        self.cpu_memory_usage += other.cpu_memory_usage
        self.self_cpu_memory_usage += other.self_cpu_memory_usage
        self.flops += other.flops or 0
        return self

    __iadd__ = add

    def __repr__(self):
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} input_shapes={self.input_shapes or ''} "
            f"cpu_memory_usage={self.cpu_memory_usage}>"
        )


_Column = namedtuple("_Column", "title width text")


class EventList(list):
    """Events or their averages."""

    def __init__(self, events=(), profile_memory=False, with_flops=False, with_shapes=False, with_stack=False):
        super().__init__(events)
        self._profile_memory = profile_memory
        self._with_flops = with_flops
        self._with_shapes = with_shapes
        self._with_stack = with_stack

    def _like(self, events, **changes):
        options = {
            "profile_memory": self._profile_memory,
            "with_flops": self._with_flops,
            "with_shapes": False,
            "with_stack": False,
        }
        return EventList(events, **(options | changes))

    def _populate_cpu_children(self):
        """Link events of the CPU with those that they ran in, by their times."""
        threads = defaultdict(list)
        for event in self:
            if not event.is_async and event.device_type == DeviceType.CPU:
                threads[event.thread, event.node_id].append(event)
        for events in threads.values():
            running = []
            for event in sorted(events, key=lambda e: (e.time_range.start, -e.time_range.end)):
                span = event.time_range
                while running and not (
                    running[-1].time_range.start <= span.start < running[-1].time_range.end
                    and span.end <= running[-1].time_range.end
                ):
                    running.pop()
                if running:
                    running[-1].append_cpu_child(event)
                    event.set_cpu_parent(running[-1])
                running.append(event)

    @property
    def self_cpu_time_total(self):
        return sum(event.self_cpu_time_total for event in self)

    @property
    def self_device_time_total(self):
        """What GPUs ran, each kernel counted once."""
        return sum(event.self_device_time_total for event in self if event.device_type != DeviceType.CPU)

    def key_averages(self, group_by_input_shapes=False, group_by_stack_n=0, group_by_overload_name=False):
        """The events of each name added up; also told apart by shapes, by the innermost frames of the stack or by the
        names of overloads, which events of programs' own may have."""
        averages = defaultdict(FunctionEventAvg)
        for event in self:
            key = [event.key, event.device_type]
            if group_by_input_shapes:
                key.append(str(event.input_shapes))
            if group_by_overload_name:
                key.append(event.overload_name)
            if group_by_stack_n > 0:
                key += event.stack[:group_by_stack_n]
            averages[tuple(key)].add(event)
        for average in averages.values():
            average.stack = average.stack[:group_by_stack_n]
            if not group_by_overload_name:
                average.overload_name = ""
            if not group_by_input_shapes:
                average.input_shapes = ""
        return self._like(averages.values(), with_shapes=group_by_input_shapes, with_stack=group_by_stack_n > 0)

    def total_average(self):
        """All events added up."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
            total.key = None
        total.key = "Total"
        return total

    # ---- tables
    def _columns(self, names, stacks, shapes_width, share_of, time):
        numbers = [
            _Column("Self CPU %", 12, lambda e: _format_share(e.self_cpu_time_total, share_of)),
            _Column("Self CPU", 12, lambda e: time(e.self_cpu_time_total)),
            _Column("CPU total %", 12, lambda e: _format_share(e.cpu_time_total, share_of)),
            _Column("CPU total", 12, lambda e: time(e.cpu_time_total)),
            _Column("CPU time avg", 12, lambda e: time(e.cpu_time)),
        ]
        if device := self.self_device_time_total:
            numbers += [
                _Column("Self CUDA", 12, lambda e: time(e.self_device_time_total)),
                _Column("Self CUDA %", 12, lambda e: _format_share(e.self_device_time_total, device)),
                _Column("CUDA total", 12, lambda e: time(e.device_time_total)),
                _Column("CUDA time avg", 13, lambda e: time(e.device_time)),
            ]
        if self._profile_memory:
            numbers += [
                _Column("CPU Mem", 12, lambda e: _format_memory(e.cpu_memory_usage)),
                _Column("Self CPU Mem", 12, lambda e: _format_memory(e.self_cpu_memory_usage)),
            ]
        columns = [_Column("Name", max(map(len, names), default=4), None), *numbers]
        columns.append(_Column("# of Calls", 12, lambda e: str(e.count)))
        if self._with_shapes:
            columns.append(_Column("Input Shapes", shapes_width, lambda e: str(e.input_shapes)[:shapes_width]))
        if self._with_stack and stacks:
            width = max(map(len, stacks))
            columns.append(_Column("Source Location", width, lambda e: e.stack[0] if e.stack else ""))
        if self._with_flops:
            columns.append(_Column("Total MFLOPs", 12, lambda e: f"{e.flops / 1e6:.3f}" if e.flops else "--"))
        return columns

    def table(
        self,
        sort_by=None,
        row_limit=100,
        max_src_column_width=75,
        max_name_column_width=55,
        max_shapes_column_width=80,
        header=None,
        top_level_events_only=False,
        time_unit=None,
    ):
        """The events as text, sorted by one of their figures, the largest first.

        Times are in the `time_unit` "s", "ms" or "us"; without one, each in the unit that suits it.
        """
        if time_unit not in (None, "s", "ms", "us"):
            raise ValueError(f"the time_unit of a table is 's', 'ms' or 'us', not {time_unit!r}")
        rows = [e for e in self if not top_level_events_only or getattr(e, "cpu_parent", None) is None]
        if sort_by is not None:
            figure = sort_by.replace("cuda", "device")
            if rows and not hasattr(rows[0], figure):
                raise AttributeError(
                    f"cannot sort by {sort_by!r}: the figures are cpu_time, cpu_time_total, self_cpu_time_total, "
                    "the same of device_time, cpu_memory_usage, self_cpu_memory_usage, count and flops"
                )
            rows.sort(key=lambda e: getattr(e, figure), reverse=True)
        if row_limit >= 0:
            rows = rows[:row_limit]
        total = self.self_cpu_time_total

        def time(microseconds):
            return _format_time(microseconds, time_unit)

        def shortened(text, width):
            return text if width is None or len(text) <= width else text[: width - 3] + "..."

        names = [shortened(e.key, max_name_column_width) for e in rows]
        stacks = [shortened(frame, max_src_column_width) for e in rows for frame in e.stack[:1]]
        shapes = max((len(str(e.input_shapes)) for e in rows), default=12)
        columns = self._columns(names, stacks, min(max(shapes, 12), max_shapes_column_width or shapes), total, time)
        line = "  ".join("-" * column.width for column in columns) + "  "
        out = [line, "  ".join(f"{column.title:>{column.width}}" for column in columns) + "  ", line]
        if header is not None:
            out.insert(0, "=" * len(line))
            out.insert(1, header)
        for event, name in zip(rows, names, strict=True):
            cells = [f"{name:>{columns[0].width}}", *(f"{c.text(event):>{c.width}}" for c in columns[1:])]
            out.append("  ".join(cells) + "  ")
            for frame in event.stack[1:] if self._with_stack else []:
                place = next(i for i, c in enumerate(columns) if c.title == "Source Location")
                out.append(" " * sum(c.width + 2 for c in columns[:place]) + shortened(frame, max_src_column_width))
        out += [line, f"Self CPU time total: {time(total)}"]
        if device := self.self_device_time_total:
            out.append(f"Self CUDA time total: {time(device)}")
        return "\n".join([*out, ""])

    def __str__(self):
        return self.table()

    # ---- files
    def export_chrome_trace(self, path, metadata=None):
        """Write the events for chrome://tracing and Perfetto; they read gzipped files too, by the ending .gz."""
        from mica.autograd._chrome_trace import write_trace

        write_trace(self, path, self._profile_memory, metadata)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Write stacks with their time, as flame graph tools read them."""
        if metric not in ("self_cpu_time_total", "cpu_time_total"):
            raise ValueError("metric should be one of: self_cpu_time_total, cpu_time_total")
        with open(path, "w") as file:
            for event in self:
                if event.stack:
                    frames = ";".join(frame.replace(" ", "_") for frame in reversed(event.stack))
                    file.write(f"{frames} {int(getattr(event, metric))}\n")


def events_from(rows, device_rows=(), **options):
    """An EventList of what the engine recorded, each event linked with the one that it ran in, and of what GPUs ran."""
    origin = rows[0][4] if rows else min((row[2] for row in device_rows), default=0)
    events = [FunctionEvent._of_row(number, row, origin) for number, row in enumerate(rows)]
    for event, row in zip(events, rows, strict=True):
        if row[2] >= 0:
            event.cpu_parent = events[row[2]]
            event.cpu_parent.cpu_children.append(event)
    if device_rows:
        from mica.autograd._device_events import events_of_devices

        events += events_of_devices(device_rows, events, origin)
    return EventList(events, **options)
