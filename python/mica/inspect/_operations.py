"""`inspect.operations()`: the time that operations take, by the program's line."""

from mica import _C
from mica.inspect import _places
from mica.inspect._terminal import table


class operations:
    """Records how long this thread's operations take in a `with` block, by name and line."""

    def __init__(self):
        self.totals = []

    def __enter__(self):
        _C._operations_start()
        return self

    def __exit__(self, *exception):
        self.totals = _C._operations_stop()

    def update(self):
        """Include what has happened so far, within the block."""
        self.totals = _C._operations_so_far()
        return self

    def by_line(self):
        """The slowest lines first: dicts of line, code, calls, seconds and the operations."""
        lines = {}
        for operation, place, calls, nanoseconds in self.totals:
            row = lines.setdefault(
                _places.shown(place),
                {
                    "line": _places.shown(place),
                    "code": _places.code(place),
                    "calls": 0,
                    "seconds": 0.0,
                    "operations": {},
                },
            )
            row["calls"] += calls
            row["seconds"] += nanoseconds / 1e9
            row["operations"][operation] = row["operations"].get(operation, 0.0) + nanoseconds / 1e9
        return sorted(lines.values(), key=lambda row: -row["seconds"])

    def by_operation(self):
        """The slowest operations first: dicts of operation, calls, seconds."""
        names = {}
        for operation, _, calls, nanoseconds in self.totals:
            row = names.setdefault(operation, {"operation": operation, "calls": 0, "seconds": 0.0})
            row["calls"] += calls
            row["seconds"] += nanoseconds / 1e9
        return sorted(names.values(), key=lambda row: -row["seconds"])

    @property
    def seconds(self):
        """The time of all operations."""
        return sum(nanoseconds for *_, nanoseconds in self.totals) / 1e9

    def table(self, row_limit=20):
        """The slowest lines as text."""
        rows = [(r["line"], r["calls"], f"{r['seconds'] * 1e3:.2f} ms", r["code"]) for r in self.by_line()[:row_limit]]
        return table(("line", "calls", "time", "code"), rows, "<>><") if rows else "no operations"

    def __str__(self):
        return self.table()

    __repr__ = __str__
