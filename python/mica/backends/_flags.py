"""The functions set_flags and flags, which torch has for the settings of each library."""

import contextlib
import sys


def _bound(function, names, values, named):
    """The values of a call by the names of the settings."""
    if len(values) > len(names):
        raise TypeError(f"{function}() takes at most {len(names)} arguments ({len(values)} given)")
    bound = dict(zip(names, values, strict=False))
    for name, value in named.items():
        if name not in names:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        if name in bound:
            raise TypeError(f"{function}() got multiple values for argument {name!r}")
        bound[name] = value
    return bound


def setter_and_context(module_name, **defaults):
    """The functions of a module whose settings have these names; within flags(), those not named have these values."""
    module = sys.modules[module_name]

    def change(settings):
        before = {name: getattr(module, name) for name in defaults}
        for name, value in settings.items():
            if value is not None:
                setattr(module, name, value)
        return before

    def set_flags(*values, **named):
        settings = _bound("set_flags", [f"_{name}" for name in defaults], values, named)
        return tuple(change({name[1:]: value for name, value in settings.items()}).values())

    @contextlib.contextmanager
    def flags(*values, **named):
        before = change({**defaults, **_bound("flags", list(defaults), values, named)})
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(module, name, value)

    return set_flags, flags
