"""What `mica check` finds while a program runs: lines that copy, that make a GPU wait, that widen their numbers."""

import os
import sys

import mica
from mica._functions.families import own_name
from mica.inspect._copies import copies
from mica.overrides import TorchFunctionMode

_PACKAGE = os.path.dirname(os.path.realpath(mica.__file__)) + os.sep

# Python asks for a value: a GPU has to finish all its work before it can answer.
_WAITS = {
    "item": ".item() fetches a number",
    "tolist": ".tolist() fetches all numbers",
    "numpy": ".numpy() fetches all numbers",
    "__array__": "a NumPy function fetches all numbers",
    "cpu": ".cpu() fetches the tensor",
    "__bool__": "a condition on a tensor fetches its value",
    "__float__": "float() fetches a number",
    "__int__": "int() fetches a number",
    "__index__": "an index from a tensor fetches its value",
    "nonzero": "nonzero() has as many rows as there are numbers that are not zero",
    "masked_select": "masked_select() has as many numbers as the mask has",
    "unique": "unique() has as many numbers as there are different ones",
    "__contains__": "`in` compares, and fetches the result",
}
# Operations whose result has a dtype that all of their inputs can be cast to.
_PROMOTE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "true_divide",
        "floor_divide",
        "pow",
        "maximum",
        "minimum",
        "where",
        "cat",
        "stack",
        "atan2",
        "fmod",
        "remainder",
        "lerp",
        "addcmul",
        "addcdiv",
        "__add__",
        "__radd__",
        "__sub__",
        "__rsub__",
        "__mul__",
        "__rmul__",
        "__truediv__",
        "__rtruediv__",
        "__pow__",
        "__rpow__",
        "hypot",
        "copysign",
    ]
)


class Finding:
    """One line of the program: what it does (`copy`, `wait` or `promote`), how often, and what to do about it."""

    __slots__ = ("bytes", "file", "kind", "line", "message", "times")

    def __init__(self, file, line, kind, message):
        self.file, self.line, self.kind, self.message = file, line, kind, message
        self.times = self.bytes = 0

    def to_dict(self):
        """The finding as plain values."""
        names = ("file", "line", "kind", "message", "times", "bytes")
        return {name: getattr(self, name) for name in names}

    def __str__(self):
        often = f" ({self.times} times)" if self.times > 1 else ""
        return f"{self.file}:{self.line}:1: {self.kind}: {self.message}{often}"

    __repr__ = __str__


def _place():
    """(file, line) of the innermost frame that is not Mica's."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<") and not os.path.realpath(file).startswith(_PACKAGE):
            return file, frame.f_lineno
        frame = frame.f_back
    return None


def _tensors(args):
    for value in args:
        if isinstance(value, mica.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (v for v in value if isinstance(v, mica.Tensor))


def _short(dtype):
    return str(dtype).rpartition(".")[2]


class _Watching(TorchFunctionMode):
    _sees_operators = False

    def __init__(self, found):
        super().__init__()
        self._found = found

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = own_name(func)
        if name in _WAITS:
            self._note("wait", f"{_WAITS[name]}: on a GPU the program waits here for all work before it")
        elif name == "__getitem__" and any(t.dtype == mica.bool for t in _tensors(args[1:])):
            self._note("wait", "a mask as an index: on a GPU the program waits here until the numbers are counted")
        elif name in _PROMOTE and isinstance(result, mica.Tensor):
            self._promoted(args, result)
        return result

    def _promoted(self, args, result):
        # A number, or a tensor without dimensions, does not widen a tensor of its category: torch converts it.
        for tensor in _tensors(args):
            if tensor.dtype != result.dtype and tensor.dim() and tensor.dtype != mica.bool:
                other = next((t for t in _tensors(args) if t.dtype == result.dtype), None)
                by = f" because of a tensor of {_short(other.dtype)}" if other is not None else ""
                self._note(
                    "promote",
                    f"{_short(tensor.dtype)} {tuple(tensor.shape)} becomes {_short(result.dtype)}{by}",
                    result.nbytes,
                )

    def _note(self, kind, message, amount=0):
        place = _place()
        if place is not None:
            self._found.add(*place, kind, message, amount)


class check:
    """Records in a `with` block which lines copy without being asked to, wait for a GPU, or promote their numbers."""

    def __init__(self):
        self._lines = {}

    def add(self, file, line, kind, message, amount=0):
        """Count one more occurrence of a finding."""
        key = (file, line, kind, message)
        if key not in self._lines:
            self._lines[key] = Finding(file, line, kind, message)
        self._lines[key].times += 1
        self._lines[key].bytes += amount

    def __enter__(self):
        self._copies = copies()
        self._copies.__enter__()
        self._mode = _Watching(self)
        self._mode.__enter__()
        return self

    def __exit__(self, *exception):
        self._mode.__exit__(*exception)
        self._copies.__exit__(*exception)
        from mica.inspect import _places

        for copy in self._copies:
            file, line, _, _ = _places.place(copy.place)
            # A conversion is a promotion that has been reported already, or concerns a single number.
            if file and copy.from_dtype == copy.dtype:
                self.add(file, line, "copy", copy.why, copy.bytes)

    @property
    def findings(self):
        """The findings in the order of files and lines."""
        return sorted(self._lines.values(), key=lambda f: (f.file, f.line, f.kind))

    def __str__(self):
        return "\n".join(map(str, self.findings)) or "nothing found"

    __repr__ = __str__
