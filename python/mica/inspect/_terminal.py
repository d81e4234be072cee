"""Text for people: bytes with their unit, colours where a terminal shows them."""

import os
import sys


def colours(stream=None):
    """Whether to write escape codes: to a terminal, unless NO_COLOR asks for none."""
    stream = sys.stdout if stream is None else stream
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return bool(getattr(stream, "isatty", lambda: False)())


def readable_bytes(count):
    """A number of bytes in the unit that suits it."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1024 or unit == "TiB":
            return f"{int(count)} B" if unit == "B" else f"{amount:.2f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def table(header, rows, align):
    """Columns as wide as what is in them; `align` has a < or > for each."""
    cells = [header, *rows]
    widths = [max(len(str(row[i])) for row in cells) for i in range(len(header))]
    lines = ["  ".join(f"{row[i]!s:{align[i]}{widths[i]}}" for i in range(len(header))).rstrip() for row in cells]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
