"""Settings that programs make for libraries which Mica does not have: they are kept and change nothing."""

import contextlib
import sys


def setter_and_context(module_name, names):
    """The functions set_flags and flags of a module whose settings have these names."""
    module = sys.modules[module_name]

    def set_flags(**settings):
        before = tuple(getattr(module, name) for name in names)
        for name, value in settings.items():
            if name not in names:
                raise TypeError(f"set_flags() got an unexpected keyword argument {name!r}")
            if value is not None:
                setattr(module, name, value)
        return before

    @contextlib.contextmanager
    def flags(**settings):
        before = set_flags(**settings)
        try:
            yield
        finally:
            set_flags(**dict(zip(names, before, strict=True)))

    return set_flags, flags
