"""torch.classes: classes that libraries built for libtorch would bring. None can be loaded."""

import types


class _Namespace(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        namespace = self.__name__.rpartition(".")[2]
        raise RuntimeError(
            f"Class {namespace}.{name} not registered! Mica loads no libraries that are built for libtorch"
        )


class _Classes(types.ModuleType):
    loaded_libraries = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = self.__dict__[name] = _Namespace(f"torch.classes.{name}")
        return made

    def load_library(self, path):
        from mica._ops import ops

        ops.load_library(path)


classes = _Classes("torch.classes")
