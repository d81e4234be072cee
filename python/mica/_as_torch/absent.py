"""Names of torch's that Mica does not have: they can be imported and named; use is the error, and says so.

Packages import at their top what they use for a few of their users. Where torch is Mica, a module or a name that
torch 2.13 has (torch_names.txt) and Mica has not is a placeholder. An import within `try` fails instead: there the program
has an answer of its own to the absence. Registrations (`register_lowering` and its like) are accepted: they tell
something to a part of torch's that is not there. Questions (`has_triton`) are answered with no.
"""

import functools
import importlib
import importlib.machinery
import os
import re
import sys
import types

_REASONS = {
    "distributed": "Mica computes in one process",
    "jit": "there is no TorchScript in Mica",
    "_dynamo": "Mica has no compiler yet",
    "_inductor": "Mica has no compiler yet",
    "package": "Mica reads no packages of torch.package",
}


@functools.cache
def _lines():
    with open(os.path.join(os.path.dirname(__file__), "torch_names.txt"), encoding="utf-8") as file:
        return dict(line.rstrip("\n").split("\t", 1) for line in file)


@functools.cache
def names_of(module):
    """The names of torch's module ("" is torch itself) with what each is; None if torch has no such module.

    A name that the module imports from another is the place that it comes from.
    """
    line = _lines().get(module, _lines().get(module + "/"))
    if line is None:
        return None
    *groups, imported = line.split("\t")
    kinds = ("class", "function", "value")
    names = dict(pair.split("=") for pair in imported.split())
    names.update((name, kind) for kind, group in zip(kinds, groups, strict=True) for name in group.split())
    return names


def is_package(module):
    return module + "/" in _lines()


def _message(full_name):
    reason = _REASONS.get(full_name.split(".")[1], "")
    return f"{full_name} is not in Mica" + (f": {reason}" if reason else " yet")


# ---- placeholders


class AbsentType(type):
    """The type of classes that cannot be made use of: nothing is an instance, and their members are placeholders."""

    def __call__(cls, *args, **kwargs):
        raise NotImplementedError(_message(f"{cls.__module__}.{cls.__qualname__}"))

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _value(f"{cls.__module__}.{cls.__qualname__}.{name}")

    def __iter__(cls):
        raise NotImplementedError(_message(f"{cls.__module__}.{cls.__qualname__}"))


class AbsentValue:
    """A value that cannot be made use of: it can be kept, compared and printed."""

    def __init__(self, name):
        self._name = name

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(_message(self._name))

    def __str__(self):
        return self._name

    def __repr__(self):
        return f"<{self._name}, which Mica does not have>"


@functools.cache
def _value(full_name):
    return AbsentValue(full_name)


def _class(module, name):
    attributes = {"__module__": module, "__doc__": _message(f"{module}.{name}")}
    if name.endswith(("Error", "Exception")):
        return type(name, (RuntimeError,), attributes)
    if name.endswith("Warning"):
        return type(name, (UserWarning,), attributes)
    return AbsentType(name, (), attributes)


# Questions whether something is there that is not.
_QUESTION = re.compile(r"_?(has_\w+|is_\w+_(available|supported|enabled|initialized))")


def _no(*args, **kwargs):
    return False


def _registration(*args, **kwargs):
    """Registers nothing: what would look it up is not there. A decorator, or what makes one."""
    if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType):
        return args[0]
    return lambda function: function


def _function(module, name):
    if name.startswith("register_"):
        return _registration
    if _QUESTION.fullmatch(name):
        return _no

    def absent(*args, **kwargs):
        if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType):
            return _decorated(args[0])
        raise NotImplementedError(_message(f"{module}.{name}"))

    def _decorated(function):
        """A function that was decorated as its module was imported: the error comes when it is called."""

        @functools.wraps(function)
        def refuse(*args, **kwargs):
            raise NotImplementedError(_message(f"{module}.{name}"))

        return refuse

    absent.__name__ = absent.__qualname__ = name
    absent.__module__, absent.__doc__ = module, _message(f"{module}.{name}")
    return absent


def _imported(place):
    """What torch's module imports from another place: it is there, or has a placeholder of its own."""
    home, _, name = place.rpartition(".")
    module = importlib.import_module(f"torch.{home}" if home else "torch")
    try:
        return getattr(module, name)
    except AttributeError:
        kind = (names_of(home) or {}).get(name)
        if kind is not None:
            return placeholder(home, name, kind)
    return importlib.import_module(f"torch.{place}" if home else f"torch.{name}")


@functools.cache
def placeholder(module, name, kind):
    """What stands for torch's module.name."""
    if kind not in ("class", "function", "value"):
        return _imported(kind)
    full_module = f"torch.{module}" if module else "torch"
    if kind == "class":
        return _class(full_module, name)
    return _function(full_module, name) if kind == "function" else _value(f"{full_module}.{name}")


# ---- who asks


def _importer(depth):
    """The frame of the program that imports, seen from `depth` frames above."""
    frame = sys._getframe(depth)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame


def _in_try(frame):
    """Whether the frame's instruction is one whose exceptions are caught there."""
    import dis

    parse = getattr(dis, "_parse_exception_table", None)
    if frame is None or parse is None:
        return False
    return any(entry.start <= frame.f_lasti < entry.end for entry in parse(frame.f_code))


def _is_plain(frame):
    """Whether the program writes `from module import name` or `module.name`, rather than asks with hasattr or getattr."""
    import opcode

    code = frame.f_code.co_code
    plain = {opcode.opmap.get(name) for name in ("IMPORT_FROM", "LOAD_ATTR", "LOAD_METHOD")}
    return frame.f_lasti >= 0 and code[frame.f_lasti] in plain


# ---- modules


class AbsentModule(types.ModuleType):
    """A module of torch's that Mica does not have."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module = self.__name__.removeprefix("torch.")
        if names_of(f"{module}.{name}") is not None:
            return importlib.import_module(f"{self.__name__}.{name}")
        kind = names_of(module).get(name)
        if kind is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = placeholder(module, name, kind)
        self.__dict__[name] = value
        return value


class _Loader:
    def create_module(self, spec):
        return AbsentModule(spec.name, f"{spec.name} is not in Mica: its names can be imported, not used.")

    def exec_module(self, module):
        """Leaves the module as it is: there is no code to run."""


def find_spec(name):
    """The spec of a module of torch's that Mica does not have; None if torch has none either, or the import is tried."""
    module = name.removeprefix("torch.")
    if names_of(module) is None or _in_try(_importer(3)):
        return None
    return importlib.machinery.ModuleSpec(name, _Loader(), is_package=is_package(module))


def add_fallback(module, name):
    """Let a module of Mica's that torch calls `name` have placeholders for what programs import from it."""
    own = module.__dict__.get("__getattr__")
    if getattr(own, "_is_fallback", False):
        return

    def __getattr__(attribute):
        error = None
        if own is not None:
            try:
                return own(attribute)
            except AttributeError as raised:
                error = raised
        found = None if attribute.startswith("__") else _asked_for(name, attribute)
        if found is None:
            raise error or AttributeError(f"module {module.__name__!r} has no attribute {attribute!r}")
        return found

    __getattr__._is_fallback = True
    module.__getattr__ = __getattr__


# Dtypes are keys of tables: they are there however they are asked for.
_DTYPE = re.compile(r"quint(4x2|2x4)|bits(1x8|2x4|4x2|8|16)|u?int[1-7]|float8_e8m0fnu|float4_e2m1fn_x2")


def _asked_for(module, name):
    """What stands for torch's module.name, if the program names it plainly outside `try`; else None."""
    if not module and _DTYPE.fullmatch(name):
        return _value(f"torch.{name}")
    frame = sys._getframe(2)
    if not _is_plain(frame) or _in_try(frame):
        return None
    inner = f"{module}.{name}" if module else name
    if names_of(inner) is not None:
        return importlib.import_module(f"torch.{inner}")
    kind = (names_of(module) or {}).get(name)
    return None if kind is None else placeholder(module, name, kind)
