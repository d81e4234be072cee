"""Lets a program that imports torch get Mica: torch is mica, torch.x.y is mica.x.y, each module once under both names."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys

from mica.torch_version import TorchVersion


class _Loader(importlib.abc.Loader):
    def create_module(self, spec):
        module = importlib.import_module("mica" + spec.name.removeprefix("torch"))
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module):
        # The import system has put torch's spec on a module that has long had its own.
        module.__spec__ = self._own_spec
        _name_loaded()


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torch" and not name.startswith("torch."):
            return None
        ours = "mica" + name.removeprefix("torch")
        if importlib.util.find_spec(ours) is None:
            raise ModuleNotFoundError(
                f"No module named '{name}': torch is Mica here, and Mica has no '{ours}'", name=name
            )
        return importlib.machinery.ModuleSpec(name, _Loader())


def _name_loaded():
    """Give what is loaded its second name. Python would bind a module that it believes to load to its name in the package
    once more, over what the package has bound there: autograd.gradcheck is a function."""
    for name, module in list(sys.modules.items()):
        if name.startswith("mica.") and not name.startswith("mica._torch_alias"):
            sys.modules.setdefault("torch" + name.removeprefix("mica"), module)


def install():
    """Make torch another name of mica in this process. Fails if another torch has been imported."""
    import mica

    present = sys.modules.get("torch")
    if present is not None and present is not mica:
        raise ImportError("torch has been imported already; alias it to mica before anything imports it")
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    sys.modules["torch"] = mica
    # Programs compare torch.__version__ with the versions of torch that brought what they use.
    mica.__version__ = mica.version.__version__ = TorchVersion(f"2.13.0+mica.{mica.version.mica}")
    _name_loaded()
