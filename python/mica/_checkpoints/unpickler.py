"""Reads pickles of tensors and plain values without running anything that the file names.

A pickle is a program for a small stack machine. Here it runs with a fixed table of what may be named and called
(safe_globals.py): functions that put tensors together, containers, and what the user has declared safe.
"""

import struct
import sys
import types
from collections import Counter, OrderedDict
from pickle import UnpicklingError, decode_long

from mica import _C, _utils
from mica._checkpoints.safe_globals import (
    ALLOWED,
    BLOCKED_MODULES,
    CALLS,
    DimRange,
    checked_key,
    checked_state,
    refuse,
    standard_name,
    user_globals,
)
from mica.nn.parameter import Parameter


class Unpickler:
    """Runs one pickle from a file; `persistent_load` gives the storages that it refers to."""

    def __init__(self, file, *, encoding="utf-8", persistent_load=None):
        self._file = file
        self._encoding = encoding
        if persistent_load is not None:
            self.persistent_load = persistent_load
        self._user = user_globals()

    def persistent_load(self, pid):
        refuse("unsupported persistent id encountered")

    def load(self):
        self._stack, self._marks, self._memo = [], [], {}
        run = _INSTRUCTIONS
        while True:
            opcode = self._read(1)[0]
            if opcode == 0x2E:  # STOP
                return self._pop()
            instruction = run.get(opcode)
            if instruction is None:
                refuse(f"Unsupported operand {opcode}")
            instruction(self)

    # -- the file

    def _read(self, count):
        data = self._file.read(min(count, sys.maxsize))
        if len(data) != count:
            raise EOFError(f"the pickle is truncated: {count} bytes expected, {len(data)} left")
        return data

    def _line(self):
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the pickle is truncated within a line")
        return line[:-1].decode("utf-8")

    def _number(self, layout):
        return struct.unpack(layout, self._read(struct.calcsize(layout)))[0]

    # -- the stack

    def _push(self, value):
        self._stack.append(value)

    def _pop(self):
        # Items under a mark cannot be taken.
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            refuse("the pickle takes more values than it has made")
        return self._stack.pop()

    def _top(self):
        value = self._pop()
        self._stack.append(value)
        return value

    def _pop_to_mark(self):
        if not self._marks:
            refuse("the pickle has no mark")
        begin = self._marks.pop()
        items = self._stack[begin:]
        del self._stack[begin:]
        return items

    # -- names and calls

    def _named(self, module, name):
        module, name = standard_name(module, name)
        path = f"{module}.{name}"
        if module in BLOCKED_MODULES:
            refuse(f"Trying to load unsupported GLOBAL {path} whose module {module} is blocked.")
        if path in ALLOWED:
            return ALLOWED[path]
        if path in self._user:
            return self._user[path]
        shown = path.removeprefix("builtins.")
        refuse(
            f"Unsupported global: GLOBAL {shown} was not an allowed global by default. Please use "
            f"`torch.serialization.add_safe_globals([{shown}])` or the `torch.serialization.safe_globals([{shown}])` "
            "context manager to allowlist this global if you trust this class/function."
        )

    def _global(self):
        module = self._line()
        self._push(self._named(module, self._line()))

    def _stack_global(self):
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            refuse("STACK_GLOBAL requires str")
        self._push(self._named(module, name))

    def _is_users(self, value):
        # A class's method is a new object each time it is asked for.
        bound = isinstance(value, (types.MethodType, types.BuiltinMethodType))
        return any(
            value is each or (bound and type(each) is type(value) and value == each) for each in self._user.values()
        )

    def _call(self, function, args, what):
        if not isinstance(args, tuple):
            refuse(f"{what} with arguments of {type(args)}")
        try:
            if id(function) in CALLS:
                return CALLS[id(function)](*args)
            if self._is_users(function):
                return function(*args)
        except UnpicklingError:
            raise
        except Exception as error:
            raise UnpicklingError(f"{getattr(function, '__name__', function)} failed: {error}") from error
        return NotImplemented

    def _reduce(self):
        args, function = self._pop(), self._pop()
        made = self._call(function, args, "REDUCE")
        if made is NotImplemented:
            owner = getattr(function, "__self__", None)
            of = f" of {owner!r:.200}" if isinstance(owner, type) else ""
            refuse(f"Trying to call reduce for unrecognized function {function!r:.200}{of}")
        self._push(made)

    def _new_object(self):
        args, cls = self._pop(), self._pop()
        if isinstance(cls, type) and isinstance(args, tuple) and self._is_users(cls):
            try:
                made = cls.__new__(cls, *args)
            except Exception as error:
                raise UnpicklingError(f"{cls.__name__} failed: {error}") from error
        else:
            made = self._call(cls, args, "NEWOBJ") if isinstance(cls, type) else NotImplemented
        if made is NotImplemented:
            refuse(
                "Can only create new object for nn.Parameter or classes allowlisted via `add_safe_globals` but got "
                f"{cls!r:.200}"
            )
        self._push(made)

    def _build(self):
        state, instance = self._pop(), self._top()
        try:
            if type(instance) is _C.Tensor:
                self._stack[-1] = _legacy_tensor(*state)
            elif type(instance) is DimRange:
                pass
            elif type(instance) is OrderedDict:
                instance.__dict__.update(state)
            elif type(instance) is Parameter:
                _utils._set_obj_state(instance, checked_state(state))
            elif self._is_users(type(instance)):
                _set_state_as_pickle_does(instance, state)
            else:
                refuse(
                    "Can only build Tensor, Parameter, OrderedDict or types allowlisted via `add_safe_globals`, but got "
                    f"{type(instance)}"
                )
        except UnpicklingError:
            raise
        except Exception as error:
            raise UnpicklingError(f"the state of a {type(instance).__name__} cannot be set: {error}") from error

    def _persistent(self):
        pid = self._pop()
        if not isinstance(pid, (tuple, int)):
            refuse(f"persistent_load id must be tuple or int, but got {type(pid)}")
        if isinstance(pid, tuple) and (not pid or pid[0] not in ("storage", b"storage")):
            refuse(f"Only persistent_load of storage is allowed, but got {type(pid[0]) if pid else pid}")
        self._push(self.persistent_load(pid))

    # -- containers

    def _list_at_top(self, opcode):
        target = self._top()
        if type(target) is not list:
            refuse(f"Can only {opcode} lists, but got {type(target)}")
        return target

    def _append(self):
        item = self._pop()
        self._list_at_top("append to").append(item)

    def _appends(self):
        items = self._pop_to_mark()
        self._list_at_top("extend").extend(items)

    def _set_in_dict(self, items, opcode):
        target = self._top()
        if type(target) not in (dict, OrderedDict, Counter):
            refuse(f"Can only {opcode} for dict, collections.OrderedDict, collections.Counter, but got {type(target)}")
        if len(items) % 2:
            refuse(f"{opcode} with a key and no value")
        try:
            for key, value in zip(items[::2], items[1::2], strict=True):
                target[checked_key(key)] = value
        except TypeError as error:
            raise UnpicklingError(str(error)) from error

    def _set_item(self):
        value, key = self._pop(), self._pop()
        self._set_in_dict([key, value], "SETITEM")

    def _add_items(self):
        items = self._pop_to_mark()
        target = self._top()
        if type(target) is not set:
            refuse(f"Can only add to sets, but got {type(target)}")
        try:
            target.update(map(checked_key, items))
        except TypeError as error:
            raise UnpicklingError(str(error)) from error

    def _tuple(self, count):
        items = [self._pop() for _ in range(count)]
        self._push(tuple(reversed(items)))

    # -- the memo

    def _put(self, index):
        self._memo[index] = self._top()

    def _get(self, index):
        try:
            self._push(self._memo[index])
        except KeyError:
            raise UnpicklingError(f"Memo value not found at index {index}") from None

    def _string(self, count):
        data = self._read(count)
        self._push(data if self._encoding == "bytes" else data.decode(self._encoding))

    def _text(self, count):
        self._push(str(self._read(count), "utf-8", "surrogatepass"))


def _legacy_tensor(storage, offset, size, stride, *rest):
    return _utils._rebuild_tensor(storage, offset, size, stride)


def _set_state_as_pickle_does(instance, state):
    if hasattr(instance, "__setstate__"):
        instance.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:  # a class that only has slots has no dict
        instance.__dict__.update(attributes)
    _utils._set_obj_state(instance, checked_state(slots or {}))


def _mark(machine):
    machine._marks.append(len(machine._stack))


_INSTRUCTIONS = {
    ord(code): run
    for code, run in {
        "c": Unpickler._global,
        "\x93": Unpickler._stack_global,
        "R": Unpickler._reduce,
        "\x81": Unpickler._new_object,
        "b": Unpickler._build,
        "Q": Unpickler._persistent,
        "a": Unpickler._append,
        "e": Unpickler._appends,
        "s": Unpickler._set_item,
        "u": lambda machine: machine._set_in_dict(machine._pop_to_mark(), "SETITEMS"),
        "\x90": Unpickler._add_items,
        "(": _mark,
        "0": Unpickler._pop,
        "1": Unpickler._pop_to_mark,
        "2": lambda machine: machine._push(machine._top()),
        "t": lambda machine: machine._push(tuple(machine._pop_to_mark())),
        "l": lambda machine: machine._push(machine._pop_to_mark()),
        "\x85": lambda machine: machine._tuple(1),
        "\x86": lambda machine: machine._tuple(2),
        "\x87": lambda machine: machine._tuple(3),
        "N": lambda machine: machine._push(None),
        "\x88": lambda machine: machine._push(True),
        "\x89": lambda machine: machine._push(False),
        ")": lambda machine: machine._push(()),
        "]": lambda machine: machine._push([]),
        "}": lambda machine: machine._push({}),
        "\x8f": lambda machine: machine._push(set()),
        "J": lambda machine: machine._push(machine._number("<i")),
        "K": lambda machine: machine._push(machine._number("<B")),
        "M": lambda machine: machine._push(machine._number("<H")),
        "\x8a": lambda machine: machine._push(decode_long(machine._read(machine._number("<B")))),
        "\x8b": lambda machine: machine._push(decode_long(machine._read(machine._number("<I")))),
        "G": lambda machine: machine._push(machine._number(">d")),
        "X": lambda machine: machine._text(machine._number("<I")),
        "\x8c": lambda machine: machine._text(machine._number("<B")),
        "\x8d": lambda machine: machine._text(machine._number("<Q")),
        "U": lambda machine: machine._string(machine._number("<B")),
        "T": lambda machine: machine._string(machine._number("<I")),
        "C": lambda machine: machine._push(machine._read(machine._number("<B"))),
        "B": lambda machine: machine._push(machine._read(machine._number("<I"))),
        "\x8e": lambda machine: machine._push(machine._read(machine._number("<Q"))),
        "\x96": lambda machine: machine._push(bytearray(machine._read(machine._number("<Q")))),
        "h": lambda machine: machine._get(machine._number("<B")),
        "j": lambda machine: machine._get(machine._number("<I")),
        "q": lambda machine: machine._put(machine._number("<B")),
        "r": lambda machine: machine._put(machine._number("<I")),
        "\x94": lambda machine: machine._put(len(machine._memo)),
        "\x80": lambda machine: machine._read(1),
        "\x95": lambda machine: machine._read(8),
    }.items()
}


def globals_in_pickle(file):
    """The names that the pickle refers to, without running it."""
    import pickletools

    found, strings = set(), []
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name == "GLOBAL":
            found.add(".".join(standard_name(*argument.split(" ", 1))))
        elif opcode.name == "STACK_GLOBAL" and len(strings) >= 2:
            found.add(".".join(standard_name(*strings[-2:])))
        if isinstance(argument, str):
            strings.append(argument)
    return found
