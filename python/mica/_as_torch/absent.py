"""Stands for the names of importable.py: they can be imported, named and asked about; using one is an error that says so.

A name exists or does not, whoever asks: `import`, `hasattr`, `getattr` and use see the same, within `try` as elsewhere.
"""

import functools
import importlib
import importlib.machinery
import types

_REASONS = {
    "distributed": "fully_shard and DTensor shard over processes",
    "jit": "there is no TorchScript in Mica",
    "_dynamo": "Mica compiles without graphs of Python code",
    "_inductor": "Mica compiles without graphs of Python code",
}


@functools.cache
def names_of(module):
    """The names that may be imported from torch's module ("" is torch itself); None if the module is not listed.

    The packages above a listed module are there too: they hold it.
    """
    from mica._as_torch.importable import LISTED

    found = None
    for listed, names, _ in LISTED:
        if listed == module:
            found = (found or ()) + tuple(names.split())
        elif listed.startswith(f"{module}.") or not module:
            held = listed.removeprefix(f"{module}.").partition(".")[0]
            found = (*(found or ()), held)
    return found


def _message(full_name):
    reason = _REASONS.get(full_name.split(".")[1], "")
    return f"{full_name} is not in Mica" + (f": {reason}" if reason else " yet")


class AbsentType(type):
    """The type of the stand-ins for classes: no object is an instance of such a class, and using one is an error."""

    def __call__(cls, *args, **kwargs):
        raise NotImplementedError(_message(f"{cls.__module__}.{cls.__qualname__}"))


def _class(module, name):
    return AbsentType(name, (), {"__module__": module, "__doc__": _message(f"{module}.{name}")})


def _function(module, name):
    def absent(*args, **kwargs):
        raise NotImplementedError(_message(f"{module}.{name}"))

    absent.__name__ = absent.__qualname__ = name
    absent.__module__, absent.__doc__ = module, _message(f"{module}.{name}")
    return absent


@functools.cache
def placeholder(module, name, kind=None):
    """The stand-in for torch's module.name: a class if it is spelt as one, otherwise a function."""
    full_module = f"torch.{module}" if module else "torch"
    kind = kind or ("class" if name[:1].isupper() else "function")
    return _class(full_module, name) if kind == "class" else _function(full_module, name)


def _listed(module, name):
    """The stand-in for torch's module.name if it is listed, and None otherwise."""
    if name not in (names_of(module) or ()):
        return None
    inner = f"{module}.{name}" if module else name
    return importlib.import_module(f"torch.{inner}") if names_of(inner) is not None else placeholder(module, name)


class AbsentModule(types.ModuleType):
    """A module of torch's that Mica does not have, with the names that are listed."""

    def __getattr__(self, name):
        found = _listed(self.__name__.removeprefix("torch."), name)
        if found is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__dict__[name] = found
        return found

    def __dir__(self):
        return sorted({*super().__dir__(), *names_of(self.__name__.removeprefix("torch."))})


class _Loader:
    def create_module(self, spec):
        return AbsentModule(spec.name, f"{spec.name} is not in Mica: its names can be imported, not used.")

    def exec_module(self, module):
        """Leaves the module as it is: there is no code to run."""


def find_spec(name):
    """The spec of a listed module, and None for any other."""
    module = name.removeprefix("torch.")
    if names_of(module) is None:
        return None
    return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)


def add_fallback(module, name):
    """Let a module of Mica's that torch calls `name` have the names that are listed for it."""
    own = module.__dict__.get("__getattr__")
    if names_of(name) is None or getattr(own, "_is_fallback", False):
        return

    def __getattr__(attribute):
        if own is not None:
            try:
                return own(attribute)
            except AttributeError:
                if attribute not in names_of(name):
                    raise
        found = _listed(name, attribute)
        if found is None:
            raise AttributeError(f"module {module.__name__!r} has no attribute {attribute!r}")
        return found

    __getattr__._is_fallback = True
    module.__getattr__ = __getattr__
