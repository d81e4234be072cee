"""`inspect.collectives()`: what this process did together with others, how long it took, and whom it waited for."""

import sys

from mica.inspect._terminal import readable_bytes, table


class Collective:
    """One collective: its group, operation, dtype, bytes, when it began, how many seconds it took, and the line."""

    __slots__ = ("began", "bytes", "dtype", "group", "line", "operation", "seconds")

    def __init__(self, group, operation, dtype, size, began, seconds, line):
        self.group, self.operation, self.dtype, self.bytes = group, operation, dtype, size
        self.began, self.seconds, self.line = began, seconds, line

    def to_dict(self):
        """Everything as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __repr__(self):
        return f"{self.line}: {self.operation} of {readable_bytes(self.bytes)}, {self.seconds * 1e3:.3f} ms"


def _engines():
    """The engines of this process's groups, by the names of the groups, with the ranks of their members."""
    world = sys.modules.get("mica.distributed.world")
    if world is None:
        return []
    found = []
    for group, name in world._world.pg_names.items():
        for backend in group._distinct():
            engine = getattr(backend, "_engine", None)
            if hasattr(engine, "take_log"):
                found.append((name, engine, world.get_process_group_ranks(group)))
    return found


class collectives:
    """Logs the collectives of this process in a `with` block, in all groups that exist when it begins."""

    def __init__(self):
        self.collectives, self.waited, self._watched = [], {}, []

    def __enter__(self):
        self.collectives, self.waited = [], {}
        self._watched = [(name, engine, ranks, engine.waited()) for name, engine, ranks in _engines()]
        for _, engine, _, _ in self._watched:
            engine.take_log()
            engine.log(True)
        return self

    def __exit__(self, *exception):
        for name, engine, ranks, before in self._watched:
            engine.log(False)
            self.collectives += [Collective(name, *entry) for entry in engine.take_log()]
            for rank, past, now in zip(ranks, before, engine.waited(), strict=False):
                self.waited[rank] = self.waited.get(rank, 0.0) + now - past
        self.collectives.sort(key=lambda each: each.began)

    def __iter__(self):
        return iter(self.collectives)

    def __len__(self):
        return len(self.collectives)

    def __getitem__(self, index):
        return self.collectives[index]

    @property
    def bytes(self):
        """The bytes of all collectives."""
        return sum(each.bytes for each in self.collectives)

    @property
    def seconds(self):
        """The time that all collectives took."""
        return sum(each.seconds for each in self.collectives)

    def by_line(self):
        """Totals of each line, the slowest first: dicts of line, operation, dtype, calls, bytes and seconds."""
        lines = {}
        for each in self.collectives:
            row = lines.setdefault(
                (each.line, each.operation, each.dtype),
                {
                    "line": each.line,
                    "operation": each.operation,
                    "dtype": each.dtype,
                    "calls": 0,
                    "bytes": 0,
                    "seconds": 0.0,
                },
            )
            row["calls"] += 1
            row["bytes"] += each.bytes
            row["seconds"] += each.seconds
        return sorted(lines.values(), key=lambda row: -row["seconds"])

    def __repr__(self):
        rows = [
            [
                row["operation"],
                row["dtype"],
                str(row["calls"]),
                readable_bytes(row["bytes"]),
                f"{row['seconds'] * 1e3:.3f} ms",
                row["line"],
            ]
            for row in self.by_line()
        ]
        late = ", ".join(
            f"{seconds:.3f} s for rank {rank}" for rank, seconds in sorted(self.waited.items()) if seconds > 0
        )
        text = (
            table(["operation", "dtype", "calls", "bytes", "time", "line"], rows, "<<>>><")
            if rows
            else "no collectives"
        )
        return f"{text}\nwaited {late}" if late else str(text)
