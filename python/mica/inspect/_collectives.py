"""`inspect.collectives()`: what this process did together with others, how long it took, and whom it waited for."""

import sys

from mica.inspect._terminal import readable_bytes, table


class Collective:
    """One collective: its group, operation, dtype, bytes, when it began, how many seconds it took, and the line.

    `late` is the rank of the world that this rank waited for most, for `waited` of these seconds; None for nobody.
    """

    __slots__ = ("began", "bytes", "dtype", "group", "late", "line", "operation", "seconds", "waited")

    def __init__(self, group, operation, dtype, size, began, seconds, line, waited=0.0, late=None):
        self.group, self.operation, self.dtype, self.bytes = group, operation, dtype, size
        self.began, self.seconds, self.line, self.waited, self.late = began, seconds, line, waited, late

    def to_dict(self):
        """Everything as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __repr__(self):
        return f"{self.line}: {self.operation} of {readable_bytes(self.bytes)}, {self.seconds * 1e3:.3f} ms"


watchers = []  # the contexts that are at work: backends tell them when they begin and end


def _backends():
    """The backends of this process's groups that keep a log."""
    world = sys.modules.get("mica.distributed.world")
    groups = list(world._world.pg_names) if world is not None else []
    return [backend for group in groups for backend in group._distinct() if hasattr(backend, "_world_ranks")]


class collectives:
    """Logs the collectives of this process in a `with` block, in the groups that exist and in those made meanwhile."""

    def __init__(self):
        self.collectives, self.waited, self._watched = [], {}, {}

    def __enter__(self):
        self.collectives, self.waited, self._watched = [], {}, {}
        for each in _backends():
            self.begin(each)
        watchers.append(self)
        return self

    def __exit__(self, *exception):
        watchers.remove(self)
        for backend, _ in list(self._watched.values()):
            self.end(backend)
        self.collectives.sort(key=lambda each: each.began)

    def begin(self, backend):
        """Logs what a backend does from now on."""
        engine = backend._engine
        engine.take_log()
        engine.log(True)
        self._watched[id(backend)] = backend, engine.waited()

    def end(self, backend):
        """Takes what a backend has logged."""
        if id(backend) not in self._watched:
            return
        _, before = self._watched.pop(id(backend))
        engine, ranks = backend._engine, backend._world_ranks
        engine.log(False)
        for *entry, late in engine.take_log():
            self.collectives.append(Collective(backend._group, *entry, None if late < 0 else ranks[late]))
        for rank, past, now in zip(ranks, before, engine.waited(), strict=False):
            self.waited[rank] = self.waited.get(rank, 0.0) + now - past

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
