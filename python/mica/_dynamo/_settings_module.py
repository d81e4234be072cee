"""Settings of torch's compiler, which is not here: they are kept and returned, and change nothing. Another name is an error.

settings.txt holds torch's names with the values that they have at first (scripts/record_compiler_settings.py).
"""

import ast
import contextlib
import copy
import functools
import os
import sys
import types

# Older names of settings.
_ALIASES = {"cache_size_limit": "recompile_limit", "accumulated_cache_size_limit": "accumulated_recompile_limit"}


@functools.cache
def _recorded():
    found = {}
    with open(os.path.join(os.path.dirname(__file__), "settings.txt"), encoding="utf-8") as file:
        for line in file:
            module, name, value = line.rstrip("\n").split("\t")
            found.setdefault(module, {})[name] = ast.literal_eval(value)
    return found


class _Group:
    """A group of settings with a name of its own, such as config.triton."""

    def __init__(self, module, prefix):
        object.__setattr__(self, "_place", (module, prefix))

    def __getattr__(self, name):
        module, prefix = self._place
        return module._read(f"{prefix}.{name}")

    def __setattr__(self, name, value):
        module, prefix = self._place
        module._write({f"{prefix}.{name}": value})

    def __delattr__(self, name):
        module, prefix = self._place
        module.__delattr__(f"{prefix}.{name}")


class SettingsModule(types.ModuleType):
    """A module whose attributes are settings."""

    @property
    def _hidden(self):
        return self.__dict__.setdefault("_hidden_names", set())

    def _key(self, name):
        name = _ALIASES.get(name, name)
        if name not in self._values:
            raise AttributeError(f"{self.__name__.replace('mica.', 'torch.', 1)}.{name} does not exist")
        return name

    def _read(self, name):
        if any(each.startswith(f"{name}.") for each in self._values):
            return _Group(self, name)
        if (key := self._key(name)) in self._hidden:
            raise AttributeError(f"{self.__name__.replace('mica.', 'torch.', 1)}.{name} has been deleted")
        return self._values[key]

    def _write(self, changes):
        changes = {self._key(name): value for name, value in changes.items()}
        self._hidden.difference_update(changes)
        self._values.update(changes)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return self._read(name)

    def __setattr__(self, name, value):
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            self._write({name: value})

    def __delattr__(self, name):
        """Hide a setting until it is set again, because unittest.mock.patch deletes a setting before it restores it."""
        if name.startswith("_"):
            super().__delattr__(name)
        else:
            self._read(name)
            self._hidden.add(self._key(name))

    def __dir__(self):
        return sorted({*super().__dir__(), *(name.partition(".")[0] for name in self._values)})

    def patch(self, arg1=None, arg2=None, **kwargs):
        """Change settings for a with block, a decorated function or a class of unittest. An unknown setting is an error
        there."""
        changes = {arg1: arg2} if isinstance(arg1, str) else dict(arg1 or {})
        return _Patch(self, {**changes, **kwargs})

    def get_config_copy(self):
        return {name: copy.copy(value) for name, value in self._values.items()}

    shallow_copy_dict = get_config_copy

    def load_config(self, config):
        import pickle

        self._write(pickle.loads(config) if isinstance(config, bytes) else config)

    def save_config(self):
        import pickle

        return pickle.dumps(self.get_config_copy())


class _Patch(contextlib.ContextDecorator):
    def __init__(self, module, changes):
        self._module, self._changes, self._before = module, changes, []

    def _recreate_cm(self):
        return _Patch(self._module, self._changes)

    def __call__(self, function):
        unittest = sys.modules.get("unittest")
        if unittest is not None and isinstance(function, type) and issubclass(function, unittest.TestCase):
            return _tests_with(self._recreate_cm(), function)
        return super().__call__(function)

    def __enter__(self):
        changes = {self._module._key(name): value for name, value in self._changes.items()}
        self._before.append({name: self._module._values[name] for name in changes})
        self._module._write(changes)

    def __exit__(self, *exception):
        self._module._write(self._before.pop())


def _tests_with(patch, tests):
    """A class of tests that run with other settings."""

    class Patched(tests):
        @classmethod
        def setUpClass(cls):
            patch.__enter__()
            cls.addClassCleanup(patch.__exit__)
            super().setUpClass()

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(Patched, name, getattr(tests, name))
    return Patched


def settings(name, place):
    """Make the module of this name the one of torch's settings at a place."""
    module = sys.modules[name]
    vars(module)["_values"] = {key: copy.deepcopy(value) for key, value in _recorded()[place].items()}
    module.__class__ = SettingsModule
