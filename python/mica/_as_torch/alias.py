"""Lets a program that imports torch get Mica: torch is mica, torch.x.y is mica.x.y, each module once under both names.

Modules, and with them the classes and functions that they define, are then called by torch's names: programs look at
`__module__`, and plain pickles hold it.
"""

import contextlib
import copyreg
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

from mica import _C
from mica._as_torch import absent as _absent
from mica._checkpoints.names import torch_module_name
from mica._functions.families import publish as _publish
from mica.torch_version import TorchVersion


def _name_of(module, name):
    """The name of a module: where torch defines what this module defines. A package has the name of its place, where Python
    looks for its modules."""
    return "torch" + name.removeprefix("mica") if hasattr(module, "__path__") else torch_module_name(name)


class _Loader(importlib.abc.Loader):
    """Loads the module torch.x: it is the module mica.x."""

    def create_module(self, spec):
        module = importlib.import_module("mica" + spec.name.removeprefix("torch"))
        self._own_spec = module.__spec__
        return module

    def get_code(self, name):
        """The code of the module, for `python -m torch.x`."""
        ours = "mica" + name.removeprefix("torch")
        return importlib.util.find_spec(ours).loader.get_code(ours)

    def exec_module(self, module):
        # The import system has put torch's spec on a module that already has its own.
        module.__spec__ = self._own_spec


# Modules of torch._C whose functions the engine has: linalg_inv there is mica.linalg.inv.
_SPACES = {f"torch._C._{family}": family for family in ("fft", "linalg", "sparse", "special")}


class _SpaceLoader(importlib.abc.Loader):
    """A module such as torch._C._linalg: the family's functions, by torch's names."""

    def create_module(self, spec):
        family = _SPACES[spec.name]
        importlib.import_module(f"mica.{family}")
        _publish(family)
        return vars(_C)[f"_{family}"]

    def exec_module(self, module):
        pass


class _FunctorchLoader(importlib.abc.Loader):
    """The package functorch, which comes with torch."""

    def create_module(self, spec):
        self._module = importlib.import_module("mica._as_torch.functorch_package")
        return types.ModuleType(spec.name, self._module.__doc__)

    def exec_module(self, module):
        module.__path__ = []
        inner = module.__name__.rpartition(".")[2]
        named = self._module if inner == "functorch" else getattr(self._module, inner)
        module.__dict__.update({name: getattr(named, name) for name in named.__all__})


class _NamingLoader(importlib.abc.Loader):
    """Loads the module mica.x: it runs under torch's name, so that what it defines has that name too."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def get_code(self, name):
        return self._loader.get_code(name)

    def exec_module(self, module):
        name, spec = module.__name__, module.__spec__
        module.__loader__ = spec.loader = self._loader
        # The module gets its second name before it runs. Otherwise Python, which believes that it loads the module,
        # would bind it to its name in the package once more, over what the package has bound there: autograd.gradcheck
        # is a function.
        sys.modules.setdefault("torch" + name.removeprefix("mica"), module)
        module.__name__ = _name_of(module, name)
        exec(self._loader.get_code(name), module.__dict__)
        _absent.add_fallback(module, name.removeprefix("mica."))


def _is_import():
    """Whether a finder was asked for an import, which may fail with a message, rather than whether there is a module."""
    return sys._getframe(3).f_code.co_name == "_find_and_load_unlocked"


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("mica."):
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
                spec.loader = _NamingLoader(spec.loader)
            return spec
        if name in (
            "functorch",
            "functorch.compile",
            "functorch.experimental",
            "functorch.experimental.control_flow",
        ):  # even where torch is installed too: its functorch asks for torch's internals
            return importlib.machinery.ModuleSpec(name, _FunctorchLoader())
        if name != "torch" and not name.startswith("torch."):
            return None
        if name in _SPACES:
            return importlib.machinery.ModuleSpec(name, _SpaceLoader())
        ours = "mica" + name.removeprefix("torch")
        try:
            found = importlib.util.find_spec(ours)
        except ModuleNotFoundError:  # its package does not exist
            found = None
        if found is not None:
            # `python -m torch.x` shows the program its origin as sys.argv[0].
            is_package = found.submodule_search_locations is not None
            return importlib.machinery.ModuleSpec(name, _Loader(), origin=found.origin, is_package=is_package)
        absent = _absent.find_spec(name)
        if absent is not None:
            return absent
        if not _is_import():
            return None
        raise ModuleNotFoundError(f"No module named '{name}': torch is Mica here, and Mica has no '{ours}'", name=name)


_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, _C._Function)


def _rename(module, name):
    """Give torch's name to a module that ran under Mica's name, and to what it defined."""
    module.__name__ = _name_of(module, name)
    for value in list(vars(module).values()):
        if not isinstance(value, _NAMED):
            continue
        home = getattr(value, "__module__", None)
        if isinstance(home, str) and (home == "mica" or home.startswith("mica.")):
            private = name == "mica._C" and value.__name__.startswith("_")
            # A type of the engine that cannot be changed has torch's name from the start.
            with contextlib.suppress(AttributeError, TypeError):
                value.__module__ = "torch._C" if private else torch_module_name(home)


def _name_loaded():
    for name, module in list(sys.modules.items()):
        if name.startswith("mica.") and isinstance(module, types.ModuleType):
            sys.modules.setdefault("torch" + name.removeprefix("mica"), module)
            _rename(module, name)
            _absent.add_fallback(module, name.removeprefix("mica."))


def _pickle_as_torch():
    """Let plain pickles hold torch's names for objects that are neither classes nor functions."""
    from mica import storage
    from mica._checkpoints.storage_pickles import reduce_as_torch

    for kind in (_C.dtype, _C.layout, _C.memory_format):
        copyreg.pickle(kind, lambda value: str(value).removeprefix("torch."))
    copyreg.pickle(
        _C.device, lambda value: (_C.device, (value.type,) if value.index is None else (value.type, value.index))
    )
    storage.TypedStorage.__reduce_ex__ = reduce_as_torch
    copyreg.pickle(_C.Size, lambda value: (_C.Size, (tuple(value),)))


def install():
    """Make torch another name of mica in this process. Fails if another torch has been imported."""
    import mica

    present = sys.modules.get("torch")
    if present is not None and present is not mica:
        raise ImportError("torch has been imported already; alias it to mica before anything imports it")
    if present is mica and mica.__name__ == "torch":
        return
    sys.meta_path.insert(0, _Finder())
    sys.modules["torch"] = mica
    mica.torch = mica
    # Programs compare torch.__version__ with the versions of torch that brought a feature.
    mica.__version__ = mica.version.__version__ = TorchVersion(f"2.13.0+mica.{mica.version.mica}")
    _pickle_as_torch()
    _rename(mica, "mica")
    _absent.add_fallback(mica, "")
    _name_loaded()
    for space in ("_nn_functional", "_linalg", "_special", "_fft"):
        if (functions := getattr(mica._C, space, None)) is not None:
            _rename(functions, f"mica.{space[1:].replace('_', '.', 1)}")
