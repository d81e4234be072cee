"""Where modules come from: Python's own imports, or packages."""

import importlib
import sys
from abc import ABC, abstractmethod

from mica.package._mangling import demangle, get_mangle_prefix, is_mangled

__all__ = ["Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter", "sys_importer"]


class ObjNotFoundError(Exception):
    """An importer has no object of this name."""


class ObjMismatchError(Exception):
    """An importer has another object of this name."""


class Importer(ABC):
    """Finds modules by name, and the names of objects."""

    modules: dict

    @abstractmethod
    def import_module(self, module_name):
        """The module of this name."""

    def whichmodule(self, obj, name):
        """The module that an object says it is of; the first that has it under the name, otherwise."""
        module = getattr(obj, "__module__", None)
        if module is not None:
            return module
        for other, found in self.modules.copy().items():
            if other not in ("__main__", "__mp_main__") and found is not None and getattr(found, name, None) is obj:
                return other
        return "__main__"

    def get_name(self, obj, name=None):
        """(module, name) by which this importer finds the object; an error where it finds none or another."""
        name = name or getattr(obj, "__qualname__", None) or obj.__name__
        original = self.whichmodule(obj, name)
        module_name = demangle(original)
        try:
            found = self.import_module(module_name)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, KeyError, AttributeError):
            raise ObjNotFoundError(f"{obj} was not found as {module_name}.{name}") from None
        if found is obj:
            return module_name, name
        here = get_mangle_prefix(getattr(found, "__module__", "") or "")
        there = get_mangle_prefix(original)
        places = [
            f"{place}'s module '{module_name}'"
            if is_mangled(place)
            else f"the current Python environment's '{module_name}'"
            for place in (there, here)
        ]
        raise ObjMismatchError(
            f"\n\nThe object provided is from {places[0]}, and the importer would take the one of the same name from "
            f"{places[1]}. Give PackageExporter the importer that the object comes from first: "
            "importer=(my_importer, sys_importer)."
        )


class _SysImporter(Importer):
    """Python's own imports. torch is Mica here, also where torch itself is imported beside it."""

    modules = sys.modules

    def import_module(self, module_name):
        if module_name.partition(".")[0] == "torch" and sys.modules.get("torch") is not sys.modules["mica"]:
            return importlib.import_module("mica" + module_name.removeprefix("torch"))
        return importlib.import_module(module_name)

    def whichmodule(self, obj, name):
        import pickle

        return pickle.whichmodule(obj, name)


sys_importer = _SysImporter()


class OrderedImporter(Importer):
    """The first of several importers that has a module."""

    def __init__(self, *args):
        self._importers = list(args)

    @property
    def modules(self):
        return {name: module for each in reversed(self._importers) for name, module in each.modules.items()}

    def import_module(self, module_name):
        last = None
        for each in self._importers:
            if not isinstance(each, Importer):
                raise TypeError(
                    f"{each} is not a Importer. All importers in OrderedImporter must inherit from Importer."
                )
            try:
                return each.import_module(module_name)
            except ModuleNotFoundError as error:
                last = error
        raise last or ModuleNotFoundError(module_name)
