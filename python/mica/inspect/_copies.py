"""`inspect.copies()`: every copy that the program did not spell out, with its reason and its line."""

from mica import _C
from mica.inspect import _places
from mica.inspect._terminal import readable_bytes, table


class Copy:
    """One copy: what called for it, why, how many bytes, and the program's line."""

    __slots__ = (
        "bytes", "device", "dtype", "from_device", "from_dtype", "hidden", "operation", "place", "reason", "shape",
        "strides", "why", "within",
    )  # fmt: skip

    def __init__(self, facts):
        for name in self.__slots__:
            setattr(self, name, facts[name])

    @property
    def line(self):
        """The program's line, as file:line."""
        return _places.shown(self.place)

    @property
    def code(self):
        """The text of the program's line."""
        return _places.code(self.place)

    def to_dict(self):
        """Everything as plain values."""
        return {name: getattr(self, name) for name in self.__slots__} | {"line": self.line, "code": self.code}

    def __repr__(self):
        return f"{self.line}: {self.why}"


class copies:
    """Records the copies of this thread in a `with` block.

    `strict` raises at the first hidden one. `asked` records those that the program spells out too (clone, contiguous, to).
    Copies of fewer than `least_bytes` are left out.
    """

    def __init__(self, strict=False, asked=False, least_bytes=1):
        self._options = (bool(strict), bool(asked), int(least_bytes))
        self.copies = []

    def __enter__(self):
        _C._copies_start(*self._options)
        self.copies = []
        return self

    def __exit__(self, *exception):
        self.copies = [Copy(facts) for facts in _C._copies_stop()]

    def __iter__(self):
        return iter(self.copies)

    def __len__(self):
        return len(self.copies)

    def __getitem__(self, index):
        return self.copies[index]

    @property
    def bytes(self):
        """All bytes that were copied."""
        return sum(copy.bytes for copy in self.copies)

    def by_line(self):
        """Totals of each line, the largest first: dicts of line, code, copies, bytes, reasons and one sentence why."""
        lines = {}
        for copy in self.copies:
            row = lines.setdefault(
                (copy.line, copy.reason, copy.operation),
                {"line": copy.line, "code": copy.code, "operation": copy.operation, "reason": copy.reason, "copies": 0,
                 "bytes": 0, "why": copy.why},
            )  # fmt: skip
            row["copies"] += 1
            row["bytes"] += copy.bytes
        return sorted(lines.values(), key=lambda row: -row["bytes"])

    def table(self, row_limit=20):
        """The totals of each line as text."""
        rows = self.by_line()
        if not rows:
            return "no hidden copies"
        body = [
            (row["line"], row["operation"], row["reason"], row["copies"], readable_bytes(row["bytes"]), row["code"])
            for row in rows[:row_limit]
        ]
        return table(("line", "operation", "reason", "copies", "bytes", "code"), body, "<<<>><")

    def to_dict(self):
        """Everything as plain values."""
        return {"copies": [copy.to_dict() for copy in self.copies], "lines": self.by_line(), "bytes": self.bytes}

    def __str__(self):
        return self.table()

    __repr__ = __str__
