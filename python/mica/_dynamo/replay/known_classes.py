"""What is known of objects by their classes: which cannot change, which keep more than Python sees."""

import _collections
import collections
import contextvars
import functools
import pathlib
import re
import threading
import types

import mica
from mica._dynamo.replay.names import is_of_python, is_own
from mica._dynamo.replay.observe import Refused
from mica._dynamo.replay.structure import CONSTANTS

# Objects whose state does not affect what a function computes, or that cannot change.
_OPAQUE = (
    *CONSTANTS, re.Pattern, pathlib.PurePath,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.ClassMethodDescriptorType, types.GenericAlias, types.UnionType, types.CodeType,
    type(threading.Lock()), type(threading.RLock()), type(NotImplemented), mica.Generator,
    contextvars.ContextVar, _collections._tuplegetter,
)  # fmt: skip
# Objects in C that hold others, which never are others, but may change.
HOLDERS = (
    types.MethodType, functools.partial, staticmethod, classmethod, property, types.MappingProxyType,
)  # fmt: skip
_OPAQUE_MODULES = ("typing", "inspect", "abc", "_abc")
# What a class of Python may be made of besides object: all of it is compared, or cannot change.
_BASES = (
    collections.OrderedDict, collections.defaultdict, dict, list, tuple, set, frozenset, int, float, complex, str, bytes,
    BaseException, types.SimpleNamespace, property, staticmethod, classmethod, functools.partial, type,
)  # fmt: skip
CONTEXTUAL = ("decimal", "_decimal")  # modules whose classes compute by settings that C keeps for each thread
# Entries of classes that Python and its library make, and that no program changes.
MADE_BY_PYTHON = frozenset((
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__slots__", "__orig_bases__",
    "__parameters__", "__hash__", "__abstractmethods__", "__dataclass_fields__", "__dataclass_params__", "__match_args__",
    "__firstlineno__", "__static_attributes__", "__type_params__",
))  # fmt: skip


def is_opaque(value, kind):
    if isinstance(value, _OPAQUE):
        # A program's own kind of numbers or texts has attributes besides.
        return not kind.__flags__ & 1 << 9 or is_own(kind.__module__) or is_of_python(kind.__module__)
    return kind is object or kind.__module__ in _OPAQUE_MODULES


@functools.lru_cache(4096)
def has_state_in_c(kind):
    """Whether objects of a class of Python's have room for more than attributes and the content of known bases."""
    if not kind.__flags__ & 1 << 9 or any(is_own(each.__module__) for each in kind.__mro__):
        return False  # a type in C that has attributes is a function, or Mica's
    base = next((each for each in _BASES if issubclass(kind, each)), object)
    return kind.__basicsize__ > type("", (base,), {}).__basicsize__


@functools.lru_cache(4096)
def has_slots(kind):
    return any(vars(each).get("__slots__") for each in kind.__mro__)


def is_compared_in_c(value):
    """Whether == of such values runs no code of the program's."""
    kind = type(value)
    return kind in (str, int, type, type(None)) or (kind.__eq__, kind.__hash__) == (object.__eq__, object.__hash__)


def dict_of(cached, held):
    """The number of the dict in which a functools.lru_cache finds what it knows, among the objects that it refers to."""
    known, own = cached.cache_info().currsize, vars(cached)
    found = (i for i, each in enumerate(held) if type(each) is dict and each is not own and len(each) == known)
    if (place := next(found, None)) is None:
        raise Refused("it can read what functools.lru_cache keeps")
    return place


def pairs_of(cached, held):
    """The keys and results of a functools.lru_cache with a limit, from what it refers to: first a key, its result and the
    class of the link between them, for each call that it knows, then the dict that finds the links."""
    first, last = int(held[0] is type(cached)), dict_of(cached, held)
    step, rest = divmod(last - first, len(held[last]))
    if rest or step not in (2, 3):
        raise Refused("it can read what functools.lru_cache keeps")
    return tuple(each for i in range(first, last, step) for each in held[i : i + 2])
