"""Lines of the program, as the engine numbers them."""

import linecache
import os
from functools import cache

from mica import _C


@cache
def place(number):
    """(file, line, function, caller's number) of a place."""
    return _C._place(number)


def shown(number):
    """A place as people write it: train.py:12."""
    file, line, _, _ = place(number)
    if not file:
        return "(outside the program)"
    short = os.path.relpath(file) if os.path.isabs(file) else file
    return f"{file if short.startswith('..') else short}:{line}"


def code(number):
    """The text of the line."""
    file, line, _, _ = place(number)
    return linecache.getline(file, line).strip() if file else ""


def stack(number):
    """Places from the outermost call to this one, as numbers."""
    chain = []
    while number:
        chain.append(number)
        number = place(number)[3]
    return chain[::-1]
