"""`inspect.roofline()`: what each line of a program costs, and what stands in its way: memory, arithmetic or overhead."""

import json
import linecache
import os
from math import prod

import mica
from mica.inspect._terminal import table

_PACKAGE = os.path.dirname(os.path.realpath(mica.__file__))
# Operations that only make a view: nothing is moved.
_VIEWS = frozenset(
    [
        "t",
        "transpose",
        "permute",
        "view",
        "expand",
        "expand_as",
        "select",
        "slice",
        "narrow",
        "unsqueeze",
        "squeeze",
        "unbind",
        "split",
        "chunk",
        "diagonal",
        "unfold",
        "as_strided",
        "detach",
        "alias",
        "movedim",
        "swapaxes",
        "swapdims",
        "view_as",
        "unflatten",
        "real",
        "imag",
        "numpy_T",
        "mT",
    ]
)


def machine():
    """This machine's roofs, measured once: bytes per second, operations per second by dtype, seconds of an empty call."""
    from mica import _lab

    return json.loads(_lab.ask("machine", "{}"))


def _line_of(event):
    """(file, line) of the innermost call that is the program's own."""
    for frame in event.stack:
        file, _, rest = frame.rpartition("(")
        if not os.path.realpath(file).startswith(_PACKAGE) and not file.startswith("<frozen"):
            return file, int(rest.partition(")")[0] or 0)
    return None


def _bytes_of(event):
    """What an operation reads and writes at least: each input once, each result once."""
    name = event.name.removeprefix("aten::")
    if name in _VIEWS or (name in ("reshape", "flatten", "contiguous", "to") and not event.cpu_children):
        return 0
    if name in ("reshape", "flatten") and all(c.name.removeprefix("aten::") in _VIEWS for c in event.cpu_children):
        return 0
    sizes = [getattr(mica, str(d).rpartition(".")[2]).itemsize for d in event.input_dtypes]
    read = sum(prod(shape) * size for shape, size in zip(event.input_shapes, sizes, strict=False))
    width = max(sizes, default=4)
    return read + sum(prod(shape) * width for shape in event.result_shapes if shape is not None)


def _operations_of(event):
    """Products by their formula; of the rest, one operation for each number of the larger of input and result."""
    if event.flops:
        return event.flops
    if not _bytes_of(event):
        return 0
    numbers = [prod(s) for s in event.input_shapes] + [prod(s) for s in event.result_shapes if s is not None]
    return max(numbers, default=0)


class roofline:
    """Records the operations of a `with` block, and says of each line what bounds it.

    The time that a line cannot do without is the longest of three: its bytes at the speed of memory, its operations at the
    speed of arithmetic, its calls at the cost of an empty call. What is recorded runs on this thread, on the CPU.
    """

    def __init__(self, machine=None):
        self.machine = machine
        self._rows, self.seconds = {}, 0.0

    def __enter__(self):
        from mica.autograd.profiler import profile

        if self.machine is None:
            self.machine = globals()["machine"]()
        self._profile = profile(record_shapes=True, with_stack=True)
        self._profile.__enter__()
        return self

    def __exit__(self, *exception):
        self._profile.__exit__(*exception)
        self._rows, forward, last = {}, {}, None
        for event in self._profile._events():
            top = event.cpu_parent is None or (event.cpu_parent.kind == "node" and event.cpu_parent.cpu_parent is None)
            if event.kind == "node" or not top or event.kind == "range":
                continue
            node = event.cpu_parent
            place = _line_of(event) or last
            last = place
            if node is None and event.sequence_nr >= 0:
                forward[event.sequence_nr] = place
            # A backward node belongs to the line whose operation it differentiates.
            backward = node is not None
            if backward:
                place = forward.get(node.sequence_nr, place)
            self._add(place, backward, event)
        self.seconds = sum(row["seconds"] for row in self._rows.values())

    def _add(self, place, backward, event):
        dtype = next((str(d).rpartition(".")[2] for d in event.input_dtypes), "float32")
        key = (place, backward, event.name.removeprefix("aten::"), dtype)
        row = self._rows.setdefault(key, {"calls": 0, "seconds": 0.0, "operations": 0, "bytes": 0})
        row["calls"] += 1
        row["seconds"] += event.cpu_time_total / 1e6
        row["operations"] += _operations_of(event)
        row["bytes"] += _bytes_of(event)

    def _times(self, dtype, row, on):
        speed = on["flops"].get(dtype) or on["flops"]["float32"]
        # Data that fits a cache, and was used before, comes from there.
        cached = row["bytes"] / max(1, row["calls"]) <= on.get("cache_bytes", 0)
        return {
            "memory": row["bytes"] / (on["cache_bandwidth"] if cached else on["bandwidth"]),
            "arithmetic": row["operations"] / speed,
            "overhead": row["calls"] * on["overhead"],
        }

    def _grouped(self, name_of, on=None):
        groups = {}
        for (place, backward, operation, dtype), row in self._rows.items():
            name, more = name_of(place, backward, operation)
            group = groups.setdefault(
                name,
                {**more, "calls": 0, "seconds": 0.0, "operations": 0, "bytes": 0, "_memory": 0.0, "_arithmetic": 0.0}
                | {"_overhead": 0.0, "attainable": 0.0},
            )
            times = self._times(dtype, row, on or self.machine)
            for key in ("calls", "seconds", "operations", "bytes"):
                group[key] += row[key]
            for key, value in times.items():
                group["_" + key] += value
            group["attainable"] += max(times.values())
        rows = []
        for group in groups.values():
            times = {key: group.pop("_" + key) for key in ("memory", "arithmetic", "overhead")}
            group["bound"] = max(times, key=times.get)
            group["reached"] = group["attainable"] / group["seconds"] if group["seconds"] else 0.0
            group["intensity"] = group["operations"] / group["bytes"] if group["bytes"] else 0.0
            rows.append(group)
        return sorted(rows, key=lambda row: -row["seconds"])

    def by_line(self):
        """The slowest lines first: operations, bytes, seconds, the bound, and the share of the roof that is reached."""

        def name(place, backward, _):
            file, line = place or ("", 0)
            short = os.path.relpath(file) if os.path.isabs(file) else file
            where = f"{file if short.startswith('..') else short}:{line}" if file else "(outside the program)"
            code = linecache.getline(file, line).strip() if file else ""
            return (where, backward), {"line": where, "code": code, "backward": backward}

        return self._grouped(name)

    def by_operation(self):
        """The rows by the name of the operation."""
        return self._grouped(lambda _, backward, operation: (operation, {"operation": operation}))

    def training_time(self, steps, machine=None):
        """Seconds that this many repetitions of the block take: as measured here, or at best on another machine's roofs.

        `machine` is a dict of bandwidth, overhead and flops by dtype, as `machine` of this object has.
        """
        if machine is None:
            return steps * self.seconds
        return steps * sum(row["attainable"] for row in self._grouped(lambda *key: (key, {}), machine))

    def to_dict(self):
        """Everything as plain values."""
        return {
            "machine": self.machine,
            "seconds": self.seconds,
            "lines": self.by_line(),
            "operations": self.by_operation(),
        }

    def table(self, row_limit=20):
        """The lines as text, under the machine's roofs."""
        roof = self.machine
        head = (
            f"this machine: {roof['bandwidth'] / 1e9:.1f} GB/s, {roof['flops']['float32'] / 1e9:.0f} GFLOP/s in float32, "
            f"{roof['overhead'] * 1e9:.0f} ns a call; from {roof['flops']['float32'] / roof['bandwidth']:.1f} operations a "
            "byte on arithmetic is the limit\n\n"
        )
        rows = [
            (
                row["line"] + (" (backward)" if row["backward"] else ""),
                row["calls"],
                f"{row['seconds'] * 1e3:.3g} ms",
                f"{row['operations'] / 1e6:.3g} M",
                f"{row['bytes'] / 1e6:.3g} MB",
                f"{row['intensity']:.3g}",
                row["bound"],
                f"{100 * min(row['reached'], 1):.0f} %",
            )
            for row in self.by_line()[:row_limit]
        ]
        return head + table(
            ("line", "calls", "time", "operations", "bytes", "op/B", "bound by", "of the roof"), rows, "<>>>>><>"
        )

    def __str__(self):
        return self.table()

    __repr__ = __str__
