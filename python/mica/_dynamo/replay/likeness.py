"""Arguments that are like those of a call that was captured: a new cache of keys with the shapes of the last one.

A call depends on its arguments and on what it can read besides. If the objects among the arguments are built as those of
an earlier call were (the same classes, entries, numbers and texts, and tensors that differ only in values and addresses),
and if all else is unchanged, the call does with them what the earlier one did with its own. So it need not be checked
before it is captured.
"""

import types
from collections import OrderedDict

from mica import _C
from mica._dynamo.replay.structure import CONSTANTS, PLAIN_TENSORS

_NO_GRADIENT = b"\xff" * 8
_CONTAINERS = (OrderedDict, dict, list, tuple, set, frozenset)


class _Plain:
    pass


# The sizes of objects without a state of another class's in C.
_SIZES = {base: {base.__basicsize__, type("", (base,), {}).__basicsize__} for base in _CONTAINERS}
_SIZE = _Plain.__basicsize__


class _NoForm(Exception):
    """Objects of which it cannot be said how they are built."""


class _Walk:
    """A walk through objects in a fixed order. Each gets a number when it is met for the first time."""

    def __init__(self, base):
        self._base, self._storages = base.seen, {}
        self._places = {_C._storage_address(each) for each in base.tensors}
        self.numbers, self.met, self.same = {}, [], []

    def form(self, value):
        """How a value is built. Forms are equal where values are alike; they keep no argument alive."""
        kind = type(value)
        if kind in CONSTANTS:
            return (kind, repr(value) if kind in (float, complex) else value)  # 0.0 equals -0.0
        if id(value) in self._base:
            return ("known", id(value))
        number = self.numbers.get(id(value))
        if number is not None:
            return ("again", number)
        if _stands_for_itself(value, kind):
            self.same.append(value)  # kept alive, so that no other object gets its id
            return ("same", id(value))
        self._number(value)
        if kind in PLAIN_TENSORS:
            return self._tensor(value)
        return self._object(value, kind)

    def _number(self, value):
        self.numbers[id(value)] = len(self.met)
        self.met.append(value)

    def _object(self, value, kind):
        if not _is_plain(value, kind):
            raise _NoForm
        parts = [self.form(kind)]
        if isinstance(value, dict):
            parts.append(self._entries(value))
        elif isinstance(value, (list, tuple)):
            parts.append(tuple([self.form(each) for each in tuple(value)]))
        elif isinstance(value, (set, frozenset)) and all(type(each) in CONSTANTS for each in value):
            parts.append(frozenset((type(each), each) for each in value))
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            self._number(own)
            parts.append(self._entries(own))
        if len(parts) == 1:
            raise _NoForm
        return tuple(parts)

    def _entries(self, entries):
        return tuple([(self.form(key), self.form(each)) for key, each in dict.items(entries)])

    def _tensor(self, tensor):
        facts, place = _C._tensor_facts(tensor), _C._storage_address(tensor)
        if place in self._places or facts[24:32] != _NO_GRADIENT:
            raise _NoForm
        storage = self._storages.setdefault(place, len(self._storages))
        lies = (storage, tensor.storage_offset(), tensor.untyped_storage().nbytes())
        own = tensor.__dict__
        if own:
            self._number(own)
        return (type(tensor), facts[8:24], facts[32:], lies, self._entries(own))

    def shares(self, tensors):
        """Which argument's memory is that of an object, of what is read besides, or of an argument before it."""
        places = [_C._storage_address(each) for each in tensors]
        return tuple(
            (self._storages.get(place), place if place in self._places else None, places.index(place))
            for place in places
        )


def _stands_for_itself(value, kind):
    """Whether a value is like no other one: a class, a module, or a function that holds nothing."""
    if kind is types.BuiltinFunctionType:
        return isinstance(value.__self__, types.ModuleType)
    return isinstance(value, (type, types.ModuleType)) or (kind is types.FunctionType and not value.__closure__)


def _is_plain(value, kind):
    """Whether an object's state is its entries and attributes alone. A subclass of int has a value besides."""
    container = next((base for base in _CONTAINERS if isinstance(value, base)), None)
    if kind.__basicsize__ not in _SIZES.get(container, (_SIZE,)):
        return False
    for each in kind.__mro__:
        in_python = each.__flags__ & 1 << 9
        if vars(each).get("__slots__") or not (in_python or each is object or each in _CONTAINERS):
            return False
    return True


def _walked(objects, tensors, base):
    """The walk through the objects among the arguments, and their form; None where they have none."""
    walk = _Walk(base)
    try:
        return walk, ([walk.form(each) for each in objects], walk.shares(tensors))
    except (_NoForm, RecursionError):
        return None


class Proven:
    """What a captured call has shown of all calls with arguments that are like its own."""

    def __init__(self, kind, arguments, snapshot):
        """`usable` says whether anything is shown."""
        self.usable, self._base, self._observation = False, snapshot.base, kind.observation
        if snapshot.base is None or snapshot.weakly_read or snapshot.reaches_roots or not arguments.objects:
            return
        found = _walked(arguments.objects, arguments.tensors, snapshot.base)
        if found is None:
            return
        walk, self._form = found
        others = [
            record for record in snapshot.records[len(snapshot.base.records) :] if id(record[1]) not in walk.numbers
        ]
        if any(_names(part, walk.numbers) for record in others for part in record[1:]):
            return  # something else refers to the arguments, and would keep them alive
        self._others, self._same = _C._Snapshot(tuple(others)), walk.same
        # Tensors that the call changes: numbers of those of the objects, and others as they are.
        self._changed = [walk.numbers.get(id(each), each) for each in kind.changed]
        self.changed_arguments = kind.changed_arguments
        self.draws, self.draws_on_gpus = kind.draws, kind.draws_on_gpus
        self.usable = True

    def changed_by(self, arguments, snapshot, observation):
        """The tensors that a call with these arguments changes, as the earlier call did; None where it may differ."""
        if snapshot.base is not self._base or observation is not self._observation or snapshot.weakly_read:
            return None
        found = _walked(arguments.objects, arguments.tensors, snapshot.base)
        try:
            if found is None or found[1] != self._form or self._others.first_difference() >= 0:
                return None
        except RecursionError:
            return None
        met = found[0].met
        return [met[each] if type(each) is int else each for each in self._changed]


def _names(part, numbers):
    return id(part) in numbers or (isinstance(part, (tuple, frozenset)) and any(id(each) in numbers for each in part))
