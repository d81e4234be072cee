"""What the records of a snapshot are about, and what is said of one that no longer holds.

A record is a tuple of its kind, an object and what the object held. The kinds are numbered as in comparison.h:

    DICT, ENTRY, PREFIX    a dict's keys and values; one entry, `...` where there is none; its first entries
    ORDER                  the keys of an OrderedDict in their order, which the dict beneath does not know
    SEQUENCE, SET, CELL    what a list or tuple, a set, a variable of an enclosing function holds
    TENSOR, FORM           all of a tensor but its values; the same without addresses
    CLASS, BASES, TYPE     a class's entries and where it inherits from; the class of an object, and the dict of its attributes
    FUNCTION               a function's code, defaults and attributes
    WEAK                   the address of a weak reference's object
    SETTING                what a function of C says of the thread or the process, for some arguments
    PAIRS                  keys and results that an object in C refers to side by side
"""

(
    DICT, SEQUENCE, CELL, TENSOR, ENTRY, CLASS, SET, FUNCTION, WEAK, FORM, TYPE, PREFIX, ORDER, BASES, SETTING,
    PAIRS,
) = range(16)  # fmt: skip


def sentence(record):
    """What no longer holds."""
    kind, value = record[0], record[1]
    if kind == FORM:
        return f"a tensor of shape {tuple(value.shape)} is of another kind now"
    if kind == TENSOR:
        return f"a tensor of shape {tuple(value.shape)} has other memory, another shape or another gradient"
    if kind == ENTRY:
        return f"the global {record[2]!r} has changed"
    if kind in (CLASS, BASES):
        return f"the class {value.__name__} has changed"
    if kind == FUNCTION:
        return f"the defaults, the code or the attributes of {value.__qualname__} have changed"
    if kind == TYPE:
        return f"an object is no {record[2].__name__} any more, or has another __dict__"
    if kind == WEAK:
        return "an object behind a weak reference has gone"
    if kind == CELL:
        return "a variable of an enclosing function has changed"
    if kind in (PREFIX, PAIRS):
        return "what functools.lru_cache kept has changed"
    if kind == SETTING:
        return f"{value.__name__} says something else"
    if kind == DICT:
        changed = [k for k, v in zip(record[2], record[3], strict=True) if value.get(k, ...) is not v]
        names = ", ".join(map(repr, changed[:3])) or "its entries"
        return f"an object's attribute or a dict's entry has changed: {names}"
    return f"a {type(value).__name__} has changed"
