"""Calls that are replayed by the list of C functions that they called on tensors.

Where Python did the same several times, what it did can be written down: which functions of C it called, in which order,
with which tensors and numbers. `_C._CallList` makes these calls again. So a replay computes what the function does, with
the same kernels and the same numbers, and spares Python, its modules and their hooks.
"""

import contextlib
import enum

import mica
from mica import _C
from mica._dynamo.replay.observe import Refused
from mica._dynamo.replay.structure import CONSTANTS, PLAIN_TENSORS, CapturedCall, Given, Result
from mica._dynamo.replay.thread_settings import settings_but_grad

_CONSTANT, _SLOT, _LIST, _TUPLE, _DICT = range(5)  # values, and below what a call returns, as in call_values.h
_THIS, _TENSOR, _ITEMS, _EQUAL = range(4)
# What these say of tensors depends on their forms alone, which are compared.
_OF_FORMS = frozenset((
    "shape", "size", "stride", "dim", "ndim", "ndimension", "numel", "nelement", "__len__", "dtype", "device", "layout",
    "itemsize", "element_size", "nbytes", "get_device", "is_contiguous", "is_floating_point", "is_complex", "is_signed",
    "is_conj", "is_neg", "is_inference", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_sparse_csr", "is_quantized",
    "is_nested", "is_mkldnn", "is_xpu", "is_mps", "requires_grad", "is_same_size", "result_type", "can_cast",
    "promote_types", "broadcast_shapes", "dim_order", "type", "is_tensor", "is_storage", "has_names",
))  # fmt: skip
# The forms of their results depend on values.
_OF_VALUES = frozenset((
    "nonzero", "argwhere", "masked_select", "unique", "_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount",
    "repeat_interleave", "one_hot", "combinations", "tensor_split", "arange", "range", "linspace", "logspace", "where",
    "histogramdd", "full", "to_sparse", "coalesce", "grad", "_base",
))  # fmt: skip
_CHANGED = "a tensor that no call has made or changed"
_UNLIKE_OTHERS = 0x3E0  # bits of tensors: names, sparse parts, quantizers, samples of a batch, tangents
_PLAIN = (*CONSTANTS, mica.Generator, enum.Enum, type)


class CallLists:
    """Replays calls on tensors of the CPU and of GPUs as lists of calls."""

    places = False
    draws = True
    fewest_calls = 1  # a list of fewer is not worth its comparison

    @staticmethod
    def takes(device):
        return device.type in ("cpu", "cuda")

    @staticmethod
    def is_busy():
        """A graph of the program's own is captured: what is observed and compared before a list has no place in it."""
        return mica.cuda.is_initialized() and mica.cuda.is_current_stream_capturing()

    in_turn = contextlib.nullcontext

    @classmethod
    def captured(cls, call, kind, snapshot, arguments, args, kwargs):
        """The recorded call, and what it returned."""
        recorder = Recorder(arguments.tensors, snapshot.tensors, snapshot.known)
        value = _C._call_recorded_by(recorder, call, args, kwargs)
        try:
            recorder.end()
            if (difference := snapshot.difference()) is not None:
                raise Refused(difference)
            if kind.observation.ordered_by is not None:
                raise Refused(f"it calls {kind.observation.ordered_by}")
            if recorder.number_of_calls < cls.fewest_calls:
                raise Refused("it calls few operations")
            changes = bool(kind.changed or kind.changed_arguments or kind.draws or kind.draws_on_gpus or recorder.draws)
            if changes and recorder.of_values:
                raise Refused(f"it changes what was there before, and {recorder.of_values} may give other shapes")
            result = recorder.encoded(value, snapshot.known)
            outcome = None
            if result is None:
                outcome = _Outcome(value, Given.of(arguments.tensors, arguments.objects), snapshot.known)
                result = (_TUPLE, tuple(recorder.slot_of(each) for each in outcome.tensors))
            steps = _C._CallList(recorder.list_that_returns(result), not changes)
        except Refused as refused:
            return refused, value  # the call has been made
        made = _MadeAgain(snapshot, steps, outcome)
        if outcome is None:
            made.know(args, kwargs, arguments)
        return made, value


class _Outcome(Result):
    """What a call returned that C does not build."""

    def _take(self, tensor):
        if tensor.__dict__:
            raise Refused("a result with attributes")
        super()._take(tensor)


class _MadeAgain(CapturedCall):
    """A call that is made again by a list."""

    def __init__(self, snapshot, steps, outcome):
        self.snapshot, self._steps, self._outcome = snapshot, steps, outcome
        self._state = frozenset(map(id, snapshot.tensors))
        self._run = _C._CompiledCall(steps.run)

    def know(self, args, kwargs, arguments):
        """Let C replay calls with arguments that are tensors, numbers and texts themselves."""
        values = (*args, *kwargs.values())
        if arguments.objects or sum(isinstance(each, _C.TensorBase) for each in values) != len(arguments.tensors):
            return
        known = []
        for each in values:
            if isinstance(each, _C.TensorBase):
                known.append((type(each), _C._tensor_form(each)))
            elif type(each) in CONSTANTS:
                known.append((each,))
            else:
                return
        state = tuple(sorted(self.snapshot.tensors, key=id))
        self.known = _C._KnownCall(tuple(known), tuple(kwargs), self.snapshot.compared, self._steps, state)

    def holds(self, tensors):
        """A function may ask whether an argument is a tensor that it reads besides: none is, as when it was recorded."""
        return self._state.isdisjoint(map(id, tensors)) and self.snapshot.holds()

    def replay(self, arguments):
        result = self._run(arguments.tensors)
        if result is NotImplemented or self._outcome is None:
            return result
        return self._outcome.with_tensors(result, arguments)


class Recorder:
    """Makes the calls that a function makes on tensors, and writes them down."""

    def __init__(self, tensors, state, known=()):
        """`tensors` are the arguments, `state` those that the function can read besides. `known` has the ids of all
        objects that it can read.
        """
        self._slots = {id(each): i for i, each in enumerate(tensors)}
        self._inputs, self._kept = len(tensors), list(tensors)
        self._state = {id(each): each for each in state}
        self._known = known
        self._steps, self.reason = [], None
        self.draws, self.of_values = False, None
        self._settings = settings_but_grad()
        self._counts = {id(each): _C._change_count(each) for each in self._all()}
        if any(id(each) in self._state for each in tensors):
            self.reason = "an argument that it reads besides"

    @property
    def number_of_calls(self):
        return len(self._steps)

    def __call__(self, function, args, kwargs):
        kwargs = kwargs or {}
        step = None
        if self.reason is None:
            try:
                step = self._before(function, args, kwargs)
            except Refused as refused:
                self.reason = str(refused)
        try:
            result = function(*args, **kwargs)
        except BaseException:
            self.reason = self.reason or "an operation fails"
            raise
        if step is not None:
            try:
                self._after(step, function, result)
            except Refused as refused:
                self.reason = str(refused)
        return result

    def slot_of(self, tensor):
        return (_SLOT, self._slots[id(tensor)])

    def end(self):
        """Say that the function has ended."""
        if self.reason is None and any(_C._change_count(each) != self._counts[id(each)] for each in self._all()):
            self.reason = _CHANGED
        if self.reason is not None:
            raise Refused(self.reason)

    def list_that_returns(self, result):
        """What _C._CallList takes. Each tensor is let go after the last call that needs it."""
        last = {}
        for number, step in enumerate(self._steps):
            last.update((slot, number) for slot in (*_slots_in(step[1]), *_slots_of_pattern(step[3])))
        for slot in _slots_in((result,)):
            last.pop(slot, None)
        for slot, number in last.items():
            self._steps[number][4] += (slot,)
        return self._inputs, len(self._kept), tuple(map(tuple, self._steps)), result

    def encoded(self, value, known):
        """What the function has returned, as C makes it; None where C does not. `known`: ids of objects that stay."""
        seen = set()

        def encode(value):
            kind = type(value)
            if id(value) in self._slots:
                return (_SLOT, self._slots[id(value)]) if not value.__dict__ or id(value) in known else None
            if kind in CONSTANTS or id(value) in known:
                return (_CONSTANT, value)
            if kind not in (list, tuple, dict) or id(value) in seen:
                return None
            seen.add(id(value))
            if kind is dict and not all(type(each) in CONSTANTS for each in value):
                return None
            parts = tuple(map(encode, value.values() if kind is dict else value))
            if None in parts:
                return None
            return (_DICT, parts, tuple(value)) if kind is dict else (_LIST if kind is list else _TUPLE, parts)

        return encode(value)

    # ---- one call

    def _before(self, function, args, kwargs):
        if settings_but_grad() != self._settings:
            raise Refused("it changes a setting of the thread for some operations")
        tensors = list(_tensors_of((args, kwargs)))
        if any(_C._change_count(each) != self._counts.get(id(each)) for each in tensors):
            raise Refused(_CHANGED)
        name = _name_of(function)
        if name == "__getitem__" and any(each.dtype in (mica.bool, mica.uint8) for each in _tensors_of(args[1:])):
            self.of_values = "a mask"
        elif name in _OF_VALUES and tensors:
            self.of_values = name
        values = tuple(self._value(each) for each in (*args, *kwargs.values()))
        return tensors, [function, values, tuple(kwargs) or None, None, (), mica.is_grad_enabled()]

    def _after(self, step, function, result):
        tensors, step = step
        if any(_C._change_count(each) != self._counts[id(each)] for each in tensors):
            self._count_changes(tensors)
        name = _name_of(function)
        if result is None or next(_tensors_of(result), None) is not None:
            step[3] = self._pattern(result)
            self._steps.append(step)
        elif name not in _OF_FORMS:
            raise Refused(f"it asks for a value: {name}")

    def _count_changes(self, tensors):
        """Take over the counts of tensors that a call has changed, and of those that share memory with them."""
        places = {_C._storage_address(each) for each in tensors if _C._change_count(each) != self._counts[id(each)]}
        for each in self._all():
            if _C._change_count(each) != self._counts[id(each)]:
                if _C._storage_address(each) not in places:
                    raise Refused(_CHANGED)
                self._counts[id(each)] = _C._change_count(each)

    def _value(self, value):
        kind = type(value)
        if kind in PLAIN_TENSORS:
            slot = self._slots.get(id(value))
            if slot is not None:
                return (_SLOT, slot)
            if id(value) in self._state:
                return (_CONSTANT, value)
            raise Refused("a tensor that no call has made")
        if kind in (list, tuple):
            return (_LIST if kind is list else _TUPLE, tuple(map(self._value, value)))
        if kind is dict:
            return (_DICT, tuple(map(self._value, value.values())), tuple(value))
        if kind is slice and all(type(each) in (int, type(None)) for each in (value.start, value.stop, value.step)):
            return (_CONSTANT, value)
        if isinstance(value, _C.TensorBase) or not isinstance(value, _PLAIN):
            raise Refused(f"an operation is given a {kind.__name__}")
        if kind is mica.Generator:
            if id(value) not in self._known:
                raise Refused("a generator that it makes")
            self.draws = True
        return (_CONSTANT, value)

    def _pattern(self, result):
        if isinstance(result, (list, tuple)):
            return (_ITEMS, tuple(map(self._pattern, result)))
        if not isinstance(result, _C.TensorBase):
            return (_EQUAL, result)
        if id(result) in self._slots or id(result) in self._state:
            return (_THIS, self._value(result))
        if type(result) is not _C.Tensor or result.layout is not mica.strided or result.dim() > 64:
            raise Refused("a result of an operation is not plain and dense")
        if result.requires_grad:
            raise Refused("a result of an operation requires grad")
        form = _C._tensor_form(result)
        if int.from_bytes(form[4:6], "little") & _UNLIKE_OTHERS:
            raise Refused("a result of an operation is not plain and dense")
        slot = self._slots[id(result)] = len(self._kept)
        self._kept.append(result)
        self._counts[id(result)] = _C._change_count(result)
        return (_TENSOR, slot, form)

    def _all(self):
        return (*self._kept, *self._state.values())


def _tensors_of(value):
    if isinstance(value, _C.TensorBase):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors_of(each)


def _slots_in(values):
    for each in values:
        if each[0] == _SLOT:
            yield each[1]
        elif each[0] != _CONSTANT:
            yield from _slots_in(each[1])


def _slots_of_pattern(pattern):
    if pattern[0] == _TENSOR:
        yield pattern[1]
    elif pattern[0] == _THIS:
        yield from _slots_in((pattern[1],))
    elif pattern[0] == _ITEMS:
        for each in pattern[1]:
            yield from _slots_of_pattern(each)


def _name_of(function):
    name = getattr(function, "__name__", "")
    return function.__self__.__name__ if name in ("__get__", "__set__") else name
