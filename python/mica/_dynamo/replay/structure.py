"""Arguments and results, taken apart: tensors, and all that is not a tensor."""

import dataclasses
import weakref
from collections import OrderedDict

import mica
from mica import _C
from mica._dynamo.replay.observe import Refused

CONSTANTS = (
    type(None), bool, int, float, complex, str, bytes, type(...), mica.dtype, mica.device, mica.layout,
    mica.memory_format, mica.Size, range,
)  # fmt: skip
PLAIN_TENSORS = (_C.Tensor, mica.nn.Parameter, mica.nn.Buffer)
LARGE = 1 << 20  # bytes: an argument of this size is not copied while its address stays the same


class Arguments:
    """The arguments of a call: a key that says what they are but for the tensors' values and addresses, and the tensors."""

    __slots__ = ("key", "objects", "tensors")

    @property
    def likeness(self):
        """The structure of the values, without the objects themselves."""
        return _without_ids(self.key)

    def __init__(self, args, kwargs):
        self.tensors, self.objects = [], []
        self.key = _C._call_key(args, kwargs, PLAIN_TENSORS, CONSTANTS, self.tensors, self.objects)
        if self.key is None:
            raise Refused(_reason_without_key((args, kwargs)))

    def change(self, args, kwargs):
        """What a call with these arguments has changed of them, which a replay would not change; None if nothing."""
        tensors, objects = [], []
        key = _C._call_key(args, kwargs, PLAIN_TENSORS, CONSTANTS, tensors, objects)
        if key == self.key and all(now is before for now, before in zip(tensors, self.tensors, strict=True)):
            return None
        return "it changes a list or a dict among its arguments, or what a tensor among them is"


def _reason_without_key(value):
    """Why arguments have no key: the first tensor that is not plain and dense says so."""
    kind = type(value)
    if kind in (list, tuple, dict):
        inner = [*value, *value.values()] if kind is dict else value
        return next((reason for each in inner if (reason := _reason_without_key(each))), None)
    if isinstance(value, _C.TensorBase):
        return (
            "an argument that is not dense, a conjugate, or one with attributes"
            if kind in PLAIN_TENSORS
            else f"an argument is a {kind.__name__}"
        )
    return None


def gives_back(result, args, kwargs):
    """Whether a result is, or holds, a list or a dict that was among the arguments."""
    given = {id(each) for each in _containers_in((args, tuple(kwargs.values())))}
    return bool(given) and any(id(each) in given for each in _containers_in(result))


def _containers_in(value):
    """The lists and dicts that a value holds, and itself if it is one."""
    found, queue, seen = [], [value], set()
    while queue:
        value = queue.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (list, dict)):
            found.append(value)
        if isinstance(value, (list, tuple)):
            queue += value
        elif isinstance(value, dict):
            queue += dict.values(value)
        elif dataclasses.is_dataclass(value) and hasattr(value, "__dict__"):
            queue += vars(value).values()
    return found


def _without_ids(key):
    if isinstance(key, tuple):
        return ("object", key[2]) if key[:1] == ("object",) else tuple(map(_without_ids, key))
    return key


def substituted(value, tensors):
    """Arguments with other tensors in the places of those that `Arguments` found."""
    kind = type(value)
    if kind in PLAIN_TENSORS:
        return tensors.get(id(value), value)
    if kind in (list, tuple):
        return kind([substituted(each, tensors) for each in value])
    if kind is dict:
        return {k: substituted(v, tensors) for k, v in value.items()}
    return value


class CapturedCall:
    """A call that can be replayed. `holds(tensors)` says whether it would do the same again for these, and
    `replay(arguments)` returns what it would, or NotImplemented where it cannot.
    """

    known = None  # what C replays by itself

    def forget_with(self, references, graphs):
        """Leave a list of graphs when an object that was read through a weak reference has gone."""

        def leave(_):
            if self in graphs:
                graphs.remove(self)

        self._watched = [weakref.ref(target, leave) for each in references if (target := each()) is not None]


def requires_grad(value):
    """Whether a tensor that a call has returned requires grad."""
    if isinstance(value, _C.TensorBase):
        return value.requires_grad
    if isinstance(value, (list, tuple, dict)):
        return any(map(requires_grad, value.values() if isinstance(value, dict) else value))
    return False


class Given:
    """In the place of an argument: a tensor or another object, by its number."""

    __slots__ = ("is_tensor", "number")

    def __init__(self, is_tensor, number):
        self.is_tensor, self.number = is_tensor, number

    @classmethod
    def of(cls, tensors, objects):
        """What stands for each of these arguments, by its id."""
        given = {id(each): cls(True, i) for i, each in enumerate(tensors)}
        given.update((id(each), cls(False, i)) for i, each in enumerate(objects))
        return given


class Result:
    """What a call returned, and how to make it anew with other tensors.

    It does not keep arguments alive: they are named by their numbers.
    """

    def __init__(self, value, given, known):
        """`given`: what stands for arguments (`Given.of`); `known`: ids of objects that stay what they are, among them all
        that the function can reach.
        """
        self._known, self.tensors = known, []
        self._find(value, given, set())
        own = {id(each): each for each in self.tensors}
        self._value = self._made(value, {**own, **given}, None)

    def _take(self, tensor):
        """Take a tensor that the call has made."""
        if tensor.requires_grad:
            raise Refused("a result that requires grad")
        if tensor.layout is not mica.strided or tensor.is_quantized:
            raise Refused("a result that is not dense")
        self.tensors.append(tensor)

    def _find(self, value, given, seen):
        kind = type(value)
        if kind in CONSTANTS or id(value) in seen or id(value) in given or id(value) in self._known:
            return
        seen.add(id(value))
        if kind in PLAIN_TENSORS:
            self._take(value)
        elif isinstance(value, _C.TensorBase):
            raise Refused(f"a result is a {kind.__name__}")
        elif isinstance(value, (list, tuple)):
            for each in value:
                self._find(each, given, seen)
        elif isinstance(value, dict):
            for each in (*value.keys(), *value.values()):
                self._find(each, given, seen)
            if kind is not dict:
                self._find(vars(value), given, seen) if hasattr(value, "__dict__") else None
        elif dataclasses.is_dataclass(value) and hasattr(value, "__dict__"):
            self._find(vars(value), given, seen)
        else:
            raise Refused(f"a result is a {kind.__name__}")

    def with_tensors(self, tensors, arguments):
        """The result with these tensors instead of its own, for these arguments."""
        made = {id(own): each for own, each in zip(self.tensors, tensors, strict=True)}
        return self._made(self._value, made, arguments)

    def _made(self, value, made, arguments):
        if id(value) in made:
            return made[id(value)]
        if type(value) is Given and arguments is not None:
            return (arguments.tensors if value.is_tensor else arguments.objects)[value.number]
        kind = type(value)
        if kind in CONSTANTS or id(value) in self._known:
            return value
        if kind in (list, tuple):
            new = kind([self._made(each, made, arguments) for each in value])
        elif isinstance(value, tuple):
            items = [self._made(each, made, arguments) for each in value]
            new = kind(*items) if hasattr(value, "_fields") else kind(items)
        elif kind is dict:
            new = {k: self._made(v, made, arguments) for k, v in value.items()}
        else:
            new = kind.__new__(kind)
            made[id(value)] = new
            if isinstance(value, dict):
                keep = OrderedDict.__setitem__ if isinstance(value, OrderedDict) else dict.__setitem__
                for k, v in dict.items(value):
                    keep(new, k, self._made(v, made, arguments))
            elif isinstance(value, list):
                list.extend(new, [self._made(each, made, arguments) for each in value])
            if hasattr(value, "__dict__"):
                vars(new).update({k: self._made(v, made, arguments) for k, v in vars(value).items()})
        made[id(value)] = new
        return new
