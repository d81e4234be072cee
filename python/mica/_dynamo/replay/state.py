"""A snapshot of all that a call can read: whether it still holds says whether the call would do the same again.

The functions that ran are known (observe.py). What they can read begins with their globals, closures and defaults and with
the arguments, and goes on through attributes, containers and classes. A snapshot has a record of each: what it held, as
the same objects or equal numbers and texts. `_C._Snapshot` compares them.
"""

import collections
import enum
import functools
import gc
import logging
import threading
import types
import weakref

import mica
from mica import _C
from mica._dynamo.replay import known_classes
from mica._dynamo.replay import records as of
from mica._dynamo.replay.names import (
    asks_by_text,
    is_of_python,
    is_own,
    names_in,
    refusal_of,
)
from mica._dynamo.replay.observe import Refused
from mica._dynamo.replay.read_names import ReadNames
from mica._dynamo.replay.reused import Reused
from mica._dynamo.replay.structure import CONSTANTS, PLAIN_TENSORS
from mica._functions import settings as _settings
from mica.backends import _precision
from mica.backends import cuda as _cuda_settings
from mica.backends import cudnn as _cudnn_settings
from mica.nn.modules import _hooks as _module_hooks

_MOST = 200_000  # records
_COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")


class Snapshot(ReadNames):
    """What the functions of an observed call can read, when it is taken: from the function itself, then from objects among
    its arguments. `base` is the first part of an earlier snapshot of the function, which is taken over where it holds.
    """

    def __init__(self, observation, function, objects, base=None, *, places=True, most=_MOST):
        """`places`: whether it matters where tensors lie, and for the host's tensors, what their values are; `most`: how
        many records there may be.
        """
        self._tensors_kind, self._facts = (of.TENSOR, _C._tensor_facts) if places else (of.FORM, _C._tensor_form)
        self._places, self._most = places, most
        self.weakly_read = []  # weak references to objects that are read through such references
        # Objects that must not be kept alive: arguments, and those that are read through weak references.
        self._not_kept = set(map(id, objects))
        self.reaches_roots = False  # whether something that is read refers to an argument, and so keeps it alive
        self._codes, self._queue, self._roots = observation.codes, [], set(map(id, objects))
        self._settings = observation.settings
        self._names = frozenset(name for code in self._codes for name in names_in(code))
        foreign = {code: names for code, names in self._codes.items() if not is_own(names.get("__name__", ""))}
        self._asks_by_text = any(map(asks_by_text, foreign))
        if (reason := next(filter(None, map(refusal_of, foreign, foreign.values())), None)) is not None:
            raise Refused(reason)
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
            self.base = None if keeps_alive else Reused(self)
        self._queue += objects
        self._drain()
        self._visit_closures()
        self.records = tuple(self._records)
        self.compared = _C._Snapshot(self.records)  # for C
        self.known = frozenset(self._seen)  # the ids of all objects that were met, which are not kept alive
        del self._seen, self._records, self._roots, self._found, self._not_kept

    def _visit_function_and_names(self, function):
        self._queue.append(function)
        for settings in (_precision._settings, _cuda_settings._attention):
            self._record_dict(settings)
        for name in ("enabled", "benchmark", "deterministic"):
            self._record_entry(vars(_cudnn_settings), name)
        self._record_entry(vars(_settings), "_deterministic")
        for function, calls in self._settings.items():
            self._records += [(of.SETTING, function, function(*args), args) for args in calls]
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
        return None if number < 0 else of.sentence(self.records[number])

    def holds(self):
        return self.compared.first_difference() < 0

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
        elif isinstance(value, weakref.ref):
            self._visit_reference(value, kind)
        elif kind in (types.MethodWrapperType, types.BuiltinFunctionType):
            if not isinstance(value.__self__, types.ModuleType):
                self._queue.append(value.__self__)
        elif kind is functools._lru_cache_wrapper:
            self._visit_cache(value)
        elif isinstance(value, enum.Enum):
            self._visit_member(value, kind)
        elif kind is slice:
            self._queue += (value.start, value.stop, value.step)
        elif known_classes.is_opaque(value, kind):
            return
        elif isinstance(value, known_classes.HOLDERS):
            self._queue += gc.get_referents(value)
            if kind not in known_classes.HOLDERS:
                self._visit_object(value, kind)
        else:
            self._visit_object(value, kind)

    def _visit_cache(self, cached):
        """Record what a functools.lru_cache has kept, and for which arguments. It may keep more later."""
        module = getattr(cached, "__module__", None)
        if is_own(module) or is_of_python(module) or not cached.cache_info().currsize:
            return
        held = gc.get_referents(cached)
        if cached.cache_parameters()["maxsize"] is None:
            entries = held[known_classes.dict_of(cached, held)]
            self._records.append((of.PREFIX, entries, tuple(entries.keys()), tuple(entries.values())))
            self._queue += (*entries.keys(), *entries.values())
        else:
            pairs = known_classes.pairs_of(cached, held)
            self._records.append((of.PAIRS, cached, pairs))
            self._queue += pairs

    def _visit_member(self, member, kind):
        if not is_of_python(kind.__module__) and not is_own(kind.__module__):
            self._record_dict(vars(member))
            self._queue += (kind, *vars(member).values())

    def _visit_logger(self, logger):
        """Record the levels that say whether a logger writes."""
        self._record_dict(vars(logger.manager))
        while logger is not None:
            self._record_dict(vars(logger))
            logger = logger.parent

    def _visit_object(self, value, kind):
        if isinstance(value, threading.local):
            raise Refused("it can read what each thread has for itself")
        if isinstance(value, BaseException):
            raise Refused("it can read an exception that was kept")
        if kind in (*weakref.ProxyTypes, weakref.finalize):
            raise Refused(f"it can read a weakref.{kind.__name__}")
        known = False
        if isinstance(value, dict):
            self._record_dict(value)
            self._queue += value.values()
            self._queue += [key for key in value if type(key) not in CONSTANTS]
            if isinstance(value, collections.OrderedDict) and len(value) > 1:
                self._records.append((of.ORDER, value, tuple(value)))
            if isinstance(value, collections.defaultdict):
                self._records.append((of.SETTING, getattr, value.default_factory, (value, "default_factory")))
                self._queue.append(value.default_factory)
            known = True
        elif isinstance(value, (list, tuple)):
            self._record_sequence(value)
            self._queue += value
            known = True
        elif isinstance(value, (set, frozenset)) and all(map(known_classes.is_compared_in_c, value)):
            self._records.append((of.SET, value, tuple(value)))
            self._queue += [each for each in value if type(each) not in CONSTANTS]
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
        if known_classes.has_slots(kind) and not is_own(kind.__module__):
            raise Refused(f"it can read a {kind.__qualname__}, which has __slots__")
        if known_classes.has_state_in_c(kind):
            raise Refused(f"it can read a {kind.__qualname__}, which holds more than Python sees")
        if id(value) not in self._not_kept:  # such a record keeps the object alive
            self._records.append(
                (of.TYPE, value, kind, own) if _C._has_this_dict(value, own) else (of.TYPE, value, kind)
            )
        self._queue.append(kind)

    def _visit_reference(self, reference, kind):
        """Visit the object of a weak reference without keeping it alive."""
        target = weakref.ref.__call__(reference)
        self._records.append((of.WEAK, reference, 0 if target is None else id(target), type(target)))
        if target is not None and id(target) not in self._seen:
            self.weakly_read.append(reference)
            self._not_kept.add(id(target))
            self._queue.append(target)
        if kind is not weakref.ref and not is_own(kind.__module__) and not is_of_python(kind.__module__):
            self._visit_object(reference, kind)

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
        if type(kind) is not type:
            self._records.append((of.TYPE, kind, type(kind)))
            self._queue.append(type(kind))
        if kind.__module__ in known_classes.CONTEXTUAL:
            raise Refused(f"it can read {kind.__module__}.{kind.__name__}, which computes by settings of the thread")
        if not kind.__flags__ & 1 << 9 or is_of_python(kind.__module__):
            return
        keys, values = _C._class_entries(kind)
        self._records += [(of.CLASS, kind, keys, values), (of.BASES, kind, kind.__mro__)]
        own = is_own(kind.__module__)
        for name, value in zip(keys, values, strict=True):
            is_function = isinstance(value, (types.FunctionType, staticmethod, classmethod, property))
            if is_function or not (own or name in known_classes.MADE_BY_PYTHON):
                self._queue.append(value)

    def _visit_function(self, function):
        """Visit a function. Only the globals and closures of functions that ran are read, because the others would not
        run again. Attributes that a program has set may be read of any."""
        state = _C._function_state(function)
        _, defaults, by_name, attributes = state
        ran = function.__code__ in self._codes
        module = function.__globals__.get("__name__", "")
        if ran or not (is_own(module) or is_of_python(module)):
            self._records.append((of.FUNCTION, function, state))
            if attributes is not None:
                self._record_dict(attributes)
                self._queue += attributes.values()
        elif attributes is not None and "__wrapped__" in attributes:
            self._queue.append(attributes["__wrapped__"])
        if not ran:
            return
        self._found.add(function.__code__)
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                content = ...
            self._records.append((of.CELL, cell, content))
            self._queue.append(content)
        if by_name is not None:
            self._record_dict(by_name)
        self._queue += (*(defaults or ()), *(by_name or {}).values())

    # ---- records

    def _record_dict(self, value):
        if any(isinstance(key, _C.TensorBase) for key in value):
            raise Refused("it can read a dict whose keys are tensors")
        self._records.append((of.DICT, value, tuple(value.keys()), tuple(value.values())))

    def _record_sequence(self, value):
        self._records.append((of.SEQUENCE, value, tuple(value)))
