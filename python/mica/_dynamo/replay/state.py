"""A snapshot of all that a call can read: whether it still holds says whether the call would do the same again.

The functions that ran are known (observe.py). What they can read begins with their globals, closures and defaults and with
the arguments, and goes on through attributes, containers and classes. A snapshot has a record of each: what it held, as
the same objects or equal numbers and texts. `_C._Snapshot` compares them.
"""

import _collections
import collections
import contextvars
import dis
import enum
import functools
import gc
import logging
import pathlib
import re
import sys
import threading
import types
import weakref

import mica
from mica import _C
from mica._dynamo.replay.observe import Refused
from mica._dynamo.replay.structure import CONSTANTS, PLAIN_TENSORS
from mica._functions import settings as _settings
from mica.backends import _precision
from mica.backends import cuda as _cuda_settings
from mica.backends import cudnn as _cudnn_settings
from mica.nn.modules import _hooks as _module_hooks

DICT, SEQUENCE, CELL, TENSOR, ENTRY, CLASS, SET, FUNCTION, WEAK, FORM, TYPE = range(11)  # the numbers of comparison.h
_MOST = 200_000  # records
# Objects whose state does not affect what a function computes, or that cannot change.
_OPAQUE = (
    *CONSTANTS, re.Pattern, enum.Enum, slice, pathlib.PurePath,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.ClassMethodDescriptorType, types.GenericAlias, types.UnionType, types.CodeType,
    types.MappingProxyType, type(threading.Lock()), type(threading.RLock()), type(NotImplemented), mica.Generator,
    functools._lru_cache_wrapper, contextvars.ContextVar, _collections._tuplegetter,
)  # fmt: skip
_BY_TEXT = frozenset(("getattr", "hasattr", "__getattribute__", "__dict__", "globals", "attrgetter", "methodcaller"))
_COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")
_OPAQUE_MODULES = ("typing", "inspect", "abc", "_abc", "logging")
# What a class of Python may be made of besides object: all of it is compared, or cannot change.
_BASES = (
    collections.OrderedDict, collections.defaultdict, dict, list, tuple, set, frozenset, int, float, complex, str, bytes,
    BaseException, types.SimpleNamespace, property, staticmethod, classmethod, functools.partial, type,
)  # fmt: skip


class _Base:
    """The part of a snapshot that does not depend on the arguments. It has most of a model, and serves the next
    arguments too."""

    def __init__(self, snapshot):
        self._codes, self.records, self.seen = snapshot._codes, tuple(snapshot._records), dict(snapshot._seen)
        self.found, self.tensors = frozenset(snapshot._found), tuple(snapshot.tensors)
        self.places = snapshot._places
        self.compared = _C._Snapshot(self.records)

    def holds(self, observation, places):
        if places != self.places:
            return False
        codes = observation.codes
        same = self._codes.keys() == codes.keys() and all(names is codes[code] for code, names in self._codes.items())
        return same and self.compared.first_difference() < 0


class Snapshot:
    """What the functions of an observed call can read, when it is taken: from the function itself, then from objects among
    its arguments. `base` is the first part of an earlier snapshot of the function, which is taken over where it holds.
    """

    def __init__(self, observation, function, objects, base=None, *, places=True, most=_MOST):
        """`places`: whether it matters where tensors lie, and for the host's tensors, what their values are; `most`: how
        many records there may be.
        """
        self._tensors_kind, self._facts = (TENSOR, _C._tensor_facts) if places else (FORM, _C._tensor_form)
        self._places, self._most, self._keeps = places, most, True
        self.weakly_read = []  # weak references to objects that are read through such references
        self.reaches_roots = False  # whether something that is read refers to an argument, and so keeps it alive
        self._codes, self._queue, self._roots = observation.codes, [], set(map(id, objects))
        self._names = frozenset(name for code in self._codes for name in _names_in(code))
        if base is not None and base.holds(observation, places):
            self._records, self._seen = list(base.records), dict(base.seen)
            self._found, self.tensors = set(base.found), list(base.tensors)
            self.base = base
        else:
            self._records, self._seen, self._found, self.tensors = [], {}, set(), []
            self._visit_function_and_names(function)
            # What is kept for the next snapshot stays alive. Arguments, and objects that are read through weak
            # references, must not.
            keeps_alive = self.weakly_read or not self._roots.isdisjoint(self._seen)
            self.base = None if keeps_alive else _Base(self)
        self._keeps = False
        self._queue += objects
        self._drain()
        self._visit_closures()
        self.records = tuple(self._records)
        self.compared = _C._Snapshot(self.records)  # for C
        self.known = frozenset(self._seen)  # the ids of all objects that were met, which are not kept alive
        del self._seen, self._records, self._roots, self._found

    def _visit_function_and_names(self, function):
        self._queue.append(function)
        for settings in (_precision._settings, _cuda_settings._attention):
            self._record_dict(settings)
        for name in ("enabled", "benchmark", "deterministic"):
            self._record_entry(vars(_cudnn_settings), name)
        self._record_entry(vars(_settings), "_deterministic")
        for value in vars(_module_hooks).values():  # C asks for them
            if isinstance(value, dict) and type(value) is not dict:
                self._record_dict(value)
                self._queue += value.values()
        self._queue += [mica.Tensor, mica.nn.Parameter]
        for code, names in self._codes.items():
            self._visit_names(code, names)
        self._drain()
        self._visit_closures()

    def difference(self):
        """A sentence that says what no longer holds; None if everything holds."""
        number = self.compared.first_difference()
        return None if number < 0 else _sentence(self.records[number])

    def holds(self):
        return self.compared.first_difference() < 0

    # ---- where reading begins

    def _visit_names(self, code, names):
        asked = _names_in(code)
        modules = [names[name] for name in asked if isinstance(names.get(name), types.ModuleType)]
        if _imports(code):
            modules += [sys.modules[name] for name in asked if name in sys.modules]
        is_own = _is_own(names.get("__name__", ""))
        for name in asked:
            if name in names:
                self._record_entry(names, name, shallow=is_own)
        seen = set()
        while modules:
            module = modules.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            for name in asked:
                if name in vars(module):
                    own = _is_own(module.__name__)
                    self._record_entry(vars(module), name, shallow=own)
                    if isinstance(vars(module)[name], types.ModuleType):
                        modules.append(vars(module)[name])

    def _record_entry(self, names, name, shallow=False):
        value = names[name]
        self._records.append((ENTRY, names, name, value))
        if not shallow or isinstance(value, (types.FunctionType, type)):
            self._queue.append(value)
        elif type(value) is dict:
            self._record_dict(value)
        elif type(value) in (list, tuple):
            self._record_sequence(value)

    def _visit_closures(self):
        """Visit functions that ran but were not reached from anywhere, such as one that a decorator keeps. Their code
        finds them, in a search through all objects. A comprehension's function is called where it is made, and nobody
        keeps it.
        """
        hidden = [
            code
            for code in self._codes
            if code.co_freevars and code not in self._found and code.co_name not in _COMPREHENSIONS
        ]
        if hidden:
            self._queue += [each for each in gc.get_referrers(*hidden) if isinstance(each, types.FunctionType)]
            self._drain()

    # ---- what can be reached

    def _drain(self):
        while self._queue:
            value = self._queue.pop()
            if id(value) in self._seen:
                self.reaches_roots |= id(value) in self._roots
                continue
            self._seen[id(value)] = value  # kept alive, so that no other object gets its id
            if len(self._records) > self._most:
                raise Refused("it can read too much")
            self._visit(value)

    def _visit(self, value):
        kind = type(value)
        if kind in PLAIN_TENSORS:
            self._visit_tensor(value)
        elif isinstance(value, _C.TensorBase):
            raise Refused(f"it can read a {kind.__name__}")
        elif isinstance(value, type):
            self._visit_class(value)
        elif isinstance(value, types.ModuleType):
            self._visit_module(value)
        elif isinstance(value, logging.Logger):
            self._visit_logger(value)
        elif kind is types.FunctionType:
            self._visit_function(value)
        elif kind is weakref.ref:
            self._visit_reference(value)
        elif kind in (types.MethodWrapperType, types.BuiltinFunctionType):
            if not isinstance(value.__self__, types.ModuleType):
                self._queue.append(value.__self__)
        elif isinstance(value, (*_OPAQUE, weakref.ref)) or kind is object or kind.__module__ in _OPAQUE_MODULES:
            return
        elif kind is types.MethodType:
            self._queue += [value.__self__, value.__func__]
        elif kind is functools.partial:
            self._queue += [value.func, value.args, value.keywords]
        elif kind in (staticmethod, classmethod):
            self._queue.append(value.__func__)
        elif kind is property:
            self._queue += [each for each in (value.fget, value.fset, value.fdel) if each is not None]
        else:
            self._visit_object(value, kind)

    def _visit_module(self, module):
        """Record what code that ran may ask a module for. Which code does is not known."""
        if not _is_own(module.__name__) and module.__name__.partition(".")[0] not in sys.stdlib_module_names:
            for name in sorted(self._names.intersection(vars(module))):
                self._record_entry(vars(module), name)

    def _visit_logger(self, logger):
        """Record the levels that say whether a logger writes."""
        self._record_dict(vars(logger.manager))
        while logger is not None:
            self._record_dict(vars(logger))
            logger = logger.parent

    def _visit_object(self, value, kind):
        if isinstance(value, threading.local):
            raise Refused("it can read what each thread has for itself")
        known = False
        if isinstance(value, dict):
            self._record_dict(value)
            self._queue += value.values()
            known = True
        elif isinstance(value, (list, tuple)):
            self._record_sequence(value)
            self._queue += value
            known = True
        elif isinstance(value, (set, frozenset)) and all(map(_is_compared_in_c, value)):
            self._records.append((SET, value, frozenset(value)))
            known = True
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            self._record_dict(own)
            self._queue += own.values()
            known = True
        if kind in (dict, list, tuple):
            return
        if not known and not kind.__flags__ & 1 << 9:  # a type in C, which may hold anything
            raise Refused(f"it can read a {kind.__module__}.{kind.__qualname__}")
        if _has_slots(kind) and not _is_own(kind.__module__):
            raise Refused(f"it can read a {kind.__qualname__}, which has __slots__")
        if _has_state_in_c(kind):
            raise Refused(f"it can read a {kind.__qualname__}, which holds more than Python sees")
        if self._keeps and not self.weakly_read:  # such a record keeps the object alive
            self._records.append((TYPE, value, kind))
        self._queue.append(kind)

    def _visit_reference(self, reference):
        """Visit the object of a weak reference without keeping it alive."""
        target = reference()
        self._records.append((WEAK, reference, 0 if target is None else id(target)))
        if target is not None and id(target) not in self._seen:
            self.weakly_read.append(reference)
            self._queue.append(target)

    def _visit_tensor(self, tensor):
        if tensor.layout is not mica.strided or tensor.is_quantized or tensor.dim() > 64:
            raise Refused("it can read a tensor that is not dense")
        self._records.append((self._tensors_kind, tensor, self._facts(tensor)))
        self.tensors.append(tensor)
        own = tensor.__dict__
        if own:
            self._record_dict(own)
            self._queue += own.values()

    def _visit_class(self, kind):
        for each in kind.__mro__:
            if each is not kind and id(each) not in self._seen:
                self._queue.append(each)
        if not kind.__flags__ & 1 << 9 or kind.__module__ in sys.stdlib_module_names:
            return
        keys, values = _C._class_entries(kind)
        self._records.append((CLASS, kind, keys, values))
        own = _is_own(kind.__module__)
        for name, value in zip(keys, values, strict=True):
            is_special = name.startswith("__") and name.endswith("__")
            if isinstance(value, (types.FunctionType, staticmethod, classmethod, property)) or not (own or is_special):
                self._queue.append(value)

    def _visit_function(self, function):
        """Visit a function. Only the globals and closures of functions that ran are read, because the others would not
        run again."""
        wrapped = vars(function).get("__wrapped__")
        if wrapped is not None:
            self._queue.append(wrapped)
        if function.__code__ not in self._codes:
            return
        self._found.add(function.__code__)
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                content = ...
            self._records.append((CELL, cell, content))
            self._queue.append(content)
        defaults, by_name = function.__defaults__, function.__kwdefaults__
        self._records.append((FUNCTION, function, (function.__code__, defaults, by_name)))
        if by_name is not None:
            self._record_dict(by_name)
        self._queue += (*(defaults or ()), *(by_name or {}).values())

    # ---- records

    def _record_dict(self, value):
        if any(isinstance(key, _C.TensorBase) for key in value):
            raise Refused("it can read a dict whose keys are tensors")
        self._records.append((DICT, value, tuple(value.keys()), tuple(value.values())))

    def _record_sequence(self, value):
        self._records.append((SEQUENCE, value, tuple(value)))


@functools.lru_cache(4096)
def _names_in(code):
    """The names that code may ask for, some of them as texts."""
    if _BY_TEXT.isdisjoint(code.co_names):
        return code.co_names
    texts = [each for each in code.co_consts if type(each) is str and each.isidentifier()]
    return tuple(dict.fromkeys((*code.co_names, *texts)))


@functools.lru_cache(4096)
def _has_state_in_c(kind):
    """Whether objects of a class of Python's have room for more than attributes and the content of known bases."""
    if not kind.__flags__ & 1 << 9 or any(_is_own(each.__module__) for each in kind.__mro__):
        return False  # a type in C that has attributes is a function, or Mica's
    base = next((each for each in _BASES if issubclass(kind, each)), object)
    return kind.__basicsize__ > type("", (base,), {}).__basicsize__


@functools.lru_cache(4096)
def _imports(code):
    return any(each.opname == "IMPORT_NAME" for each in dis.get_instructions(code))


@functools.lru_cache(4096)
def _has_slots(kind):
    return any(vars(each).get("__slots__") for each in kind.__mro__)


def _is_compared_in_c(value):
    """Whether == of such values runs no code of the program's."""
    kind = type(value)
    return kind in (str, int, type, type(None)) or (kind.__eq__, kind.__hash__) == (object.__eq__, object.__hash__)


def _is_own(module):
    """Whether a module is Mica's: its tables are compared, but not what they hold."""
    return isinstance(module, str) and module.partition(".")[0] in ("mica", "torch")


def _sentence(record):
    kind, value = record[0], record[1]
    if kind == FORM:
        return f"a tensor of shape {tuple(value.shape)} is of another kind now"
    if kind == TENSOR:
        return f"a tensor of shape {tuple(value.shape)} has other memory, another shape or another gradient"
    if kind == ENTRY:
        return f"the global {record[2]!r} has changed"
    if kind == CLASS:
        return f"the class {value.__name__} has changed"
    if kind == FUNCTION:
        return f"the defaults or the code of {value.__qualname__} have changed"
    if kind == TYPE:
        return f"an object is no {record[2].__name__} any more"
    if kind == WEAK:
        return "an object behind a weak reference has gone"
    if kind == CELL:
        return "a variable of an enclosing function has changed"
    if kind == DICT:
        changed = [k for k, v in zip(record[2], record[3], strict=True) if value.get(k, ...) is not v]
        names = ", ".join(map(repr, changed[:3])) or "its entries"
        return f"an object's attribute or a dict's entry has changed: {names}"
    return f"a {type(value).__name__} has changed"
