"""The errors of packages."""

import enum

__all__ = ["EmptyMatchError", "PackagingError", "PackagingErrorReason"]

# Python modules that reach the system. A package names them only when told to.
DISALLOWED_MODULES = ("sys", "io")


class PackagingErrorReason(enum.Enum):
    """Why a module cannot be packaged."""

    def __repr__(self):
        return f"<{self.__class__.__name__}.{self.name}>"

    IS_EXTENSION_MODULE = "Module is a C extension module. torch.package supports Python modules only."
    NO_DUNDER_FILE = "Module had no __file__ defined."
    SOURCE_FILE_NOT_FOUND = "Module had a __file__, but we could not find it in your filesystem."
    DEPENDENCY_RESOLUTION_FAILED = "Dependency resolution failed."
    NO_ACTION = "Module did not match against any action pattern. Extern, mock, or intern it."
    DENIED = "Module was denied by a pattern."
    MOCKED_BUT_STILL_USED = (
        "Module was mocked out, but is still being used in the package. Please intern or extern the mocked modules if "
        "objects are supposed to be in the package."
    )


class EmptyMatchError(Exception):
    """Raised when a pattern that had to match a module has matched none."""


class PackagingError(Exception):
    """Raised for modules that a package needs and that no rule covers, or that cannot be packaged."""

    def __init__(self, dependency_graph, debug=False):
        broken = {}
        for name, facts in dependency_graph.nodes.items():
            if facts.get("error") is not None:
                broken.setdefault(facts["error"], []).append(name)
        lines = [""]
        for reason, names in broken.items():
            lines.append(f"* {reason.value}")
            for name in names:
                lines.append(f"    {name}")
                context = dependency_graph.nodes[name].get("error_context")
                if context is not None:
                    lines.append(f"      Context: {context}")
                if name in DISALLOWED_MODULES:
                    lines.append(
                        f"      Note: `{name}` is part of Python, but reaches the system; if the packaged code needs it, "
                        f'call PackageExporter.extern("{name}")'
                    )
                if debug:
                    lines.append(f"      A path to {name}: {' -> '.join(dependency_graph.first_path(name))}")
        if not debug:
            lines += [
                "",
                "Set debug=True when invoking PackageExporter for a visualization of where broken modules are coming from!",
            ]
        self.dependency_graph = dependency_graph
        super().__init__("\n".join(lines) + "\n")
