"""Questions about objects and code, before they are packaged."""

import sys

from mica.package._mangling import is_mangled

__all__ = ["find_first_use_of_broken_modules", "is_from_package", "trace_dependencies"]


def is_from_package(obj):
    """Whether an object, or its class, was loaded from a package."""
    import types

    if isinstance(obj, types.ModuleType):
        return is_mangled(obj.__name__)
    return is_mangled(getattr(type(obj) if not hasattr(obj, "__qualname__") else obj, "__module__", "") or "")


def trace_dependencies(callable, inputs):
    """The modules whose functions run when a function is called with each of the inputs."""
    found = set()

    def note(frame, event, arg):
        name = frame.f_globals.get("__name__")
        if event == "call" and name:
            found.add(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for each in inputs:
            callable(*each)
    finally:
        sys.setprofile(before)
    found.discard(__name__)
    return list(found)


def find_first_use_of_broken_modules(exc):
    """For each module that a packaging error is about, a way from what was packaged to it."""
    from mica.package.package_exporter import PackagingError

    if not isinstance(exc, PackagingError):
        raise AssertionError("exception must be a PackagingError")
    graph = exc.dependency_graph
    return {name: graph.first_path(name) for name, facts in graph.nodes.items() if facts.get("error") is not None}
