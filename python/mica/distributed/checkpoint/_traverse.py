"""Walks through dictionaries and lists of values."""

from collections.abc import Mapping
from itertools import pairwise

import mica

__all__ = ["get_element", "print_tensor", "set_element", "traverse_state_dict"]


def _is_tensor(value):
    return isinstance(value, mica.Tensor)


def _is_leaf(value, keep_traversing, mappings_are_walked):
    """Whether a value is saved whole: no mapping, and no list that holds tensors or mappings somewhere."""
    if isinstance(value, Mapping):
        if mappings_are_walked:
            return False
        entries = value.values()
    elif isinstance(value, list):
        entries = value
    else:
        return True
    return not any(
        (isinstance(entry, (Mapping, list)) and not _is_leaf(entry, keep_traversing, mappings_are_walked))
        or (keep_traversing is not None and keep_traversing(entry))
        for entry in entries
    )


def _walk(state_dict, visitor, keep_traversing, mappings_are_walked):
    def visit(path, value):
        if _is_leaf(value, keep_traversing, mappings_are_walked):
            visitor(path, value)
        elif isinstance(value, Mapping):
            for key, each in value.items():
                visit((*path, str(key)), each)
        else:
            for place, each in enumerate(value):
                visit((*path, place), each)

    for key, value in state_dict.items():
        visit((str(key),), value)


def traverse_state_dict(state_dict, visitor, keep_traversing=_is_tensor):
    """Call visitor(path, value) for every value. Mappings are walked through; lists where they hold tensors or mappings."""
    _walk(state_dict, visitor, keep_traversing, mappings_are_walked=True)


def traverse_state_dict_v_2_3(state_dict, visitor, keep_traversing=_is_tensor):
    """traverse_state_dict as torch had it up to 2.3: mappings without tensors are values too."""
    _walk(state_dict, visitor, keep_traversing, mappings_are_walked=False)


def _extend(values, place):
    values.extend([None] * (place + 1 - len(values)))


def set_element(root_dict, path, value):
    """Set a value at a path, with the dictionaries and lists that are missing on the way."""
    here = root_dict
    for key, following in pairwise(path):
        fresh = {} if isinstance(following, str) else []
        if isinstance(here, Mapping):
            here = here.setdefault(key, fresh)
        else:
            _extend(here, key)
            if here[key] is None:
                here[key] = fresh
            here = here[key]
    if isinstance(path[-1], int):
        _extend(here, path[-1])
    here[path[-1]] = value


def get_element(root_dict, path, default_value=None):
    """The value at a path, or the default."""
    here = root_dict
    for part in path:
        if isinstance(part, int):
            if not isinstance(here, list) or len(here) <= part:
                return default_value
        elif not isinstance(here, Mapping) or part not in here:
            return default_value
        here = here[part]
    return here


def print_tensor(path, value, print_fun=print):
    """A visitor that prints what there is."""
    kind = f"Tensor size: {value.size()}" if _is_tensor(value) else f"Type: {type(value)}"
    print_fun(f"{path} {kind}")
