"""Compiled modules, by the module that torch has them in."""

from mica.jit import RecursiveScriptModule, ScriptFunction, script  # noqa: F401


def __getattr__(name):
    from mica import jit

    return getattr(jit, name)
