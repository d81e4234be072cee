"""Settings of a compiler that is not there: kept, given back, and otherwise of no effect."""

import contextlib
import copy
import sys
import types


class SettingsModule(types.ModuleType):
    """A module whose attributes are settings. One that nobody has set is the default that torch has, or False."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name[:1].isalpha():
            return False
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def patch(self, arg1=None, arg2=None, **kwargs):
        """Have other settings in a with block or a decorated function."""
        changes = {arg1: arg2} if isinstance(arg1, str) else dict(arg1 or {})
        return _Patch(self, {**changes, **kwargs})

    def get_config_copy(self):
        return {name: copy.copy(value) for name, value in vars(self).items() if not name.startswith("_")}

    shallow_copy_dict = get_config_copy

    def load_config(self, config):
        vars(self).update(config)

    def save_config(self):
        import pickle

        return pickle.dumps(self.get_config_copy())


class _Patch(contextlib.ContextDecorator):
    def __init__(self, module, changes):
        self._module, self._changes, self._before = module, changes, []

    def _recreate_cm(self):
        return _Patch(self._module, self._changes)

    def __enter__(self):
        missing = object()
        self._before.append({name: vars(self._module).get(name, missing) for name in self._changes})
        self._missing = missing
        vars(self._module).update(self._changes)

    def __exit__(self, *exception):
        for name, value in self._before.pop().items():
            if value is self._missing:
                vars(self._module).pop(name, None)
            else:
                vars(self._module)[name] = value


def settings(name, **defaults):
    """Make the module of this name one of settings."""
    module = sys.modules[name]
    module.__class__ = SettingsModule
    vars(module).update(defaults)
