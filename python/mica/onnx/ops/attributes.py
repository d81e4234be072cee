"""Attributes of a symbolic operator as lists of numbers and texts, which an operator of torch can take."""

__all__ = ["decoded", "encoded"]

_KINDS = {float: ("f", "floats"), int: ("i", "ints"), str: ("s", "strs")}


def _kind(value):
    """The type that all of some values have as an attribute; None for others."""
    if all(isinstance(each, str) for each in value):
        return str
    if not all(isinstance(each, (bool, int, float)) for each in value):
        return None
    return float if any(isinstance(each, float) for each in value) else int


def encoded(attrs):
    """Keyword arguments of the operator: names, types, where each begins and ends, and the numbers and texts themselves."""
    made = {f"attr_{key}": [] for key in ("keys", "types", "pos", "ints", "floats", "strs")}
    for name, value in attrs.items():
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise ValueError(f"Empty sequence for attribute {name}")
        kind = _kind(value if is_list else [value])
        if kind is None and is_list:
            raise ValueError(f"Unsupported sequence type for attribute {name}")
        if kind is None:
            raise ValueError(f"Unsupported attribute type for {name}: {type(value)}")
        letter, place = _KINDS[kind]
        pool = made[f"attr_{place}"]
        begin = len(pool)
        pool.extend(map(kind, value if is_list else [value]))
        made["attr_keys"].append(name)
        made["attr_types"].append(letter + "s" if is_list else letter)
        made["attr_pos"].append([begin, len(pool)])
    return made


def decoded(attr_keys, attr_types, attr_pos, attr_ints, attr_floats, attr_strs):
    """The attributes again, by name."""
    pools = {"f": attr_floats, "i": attr_ints, "s": attr_strs}
    made = {}
    for name, kind, (begin, end) in zip(attr_keys, attr_types, attr_pos, strict=True):
        values = list(pools[kind[0]][begin:end])
        made[name] = values if len(kind) == 2 else values[0]
    return made
