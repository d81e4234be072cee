"""Writes packages: objects, the code that they need, and what else one puts in."""

import enum
import itertools
import os
import pickletools
import platform
import sys
from collections import OrderedDict

from mica import _C
from mica._checkpoints.writer import _Storages
from mica.package import _mocked
from mica.package._errors import DISALLOWED_MODULES, EmptyMatchError, PackagingError, PackagingErrorReason
from mica.package._graph import DiGraph
from mica.package._pickling import pickled
from mica.package.find_file_dependencies import find_files_source_depends_on
from mica.package.glob_group import GlobGroup
from mica.package.importer import Importer, OrderedImporter, sys_importer
from mica.utils.hooks import RemovableHandle

__all__ = ["EmptyMatchError", "PackageExporter", "PackagingError", "PackagingErrorReason"]


class _Action(enum.Enum):
    INTERN = 1
    EXTERN = 2
    MOCK = 3
    DENY = 4
    REPACKAGED_MOCK_MODULE = 5
    SKIP = 6


class PackageExporter:
    """Writes a package, in a with block or until close(). Say first which modules go in (intern), are used from where the
    package is opened (extern), or are left out (mock). A module that the package needs and that no rule covers is an error.
    """

    def __init__(self, f, importer=sys_importer, debug=False):
        self.debug = debug
        self.buffer = None if isinstance(f, (str, os.PathLike)) else f
        self.zip_file = _C.PyTorchFileWriter(f if self.buffer is not None else os.fspath(f))
        self._written = set()
        self._storages, self._stored = _Storages(), set()
        self.dependency_graph = DiGraph()
        self.patterns = {}
        self._hooks = {action: OrderedDict() for action in (_Action.INTERN, _Action.EXTERN, _Action.MOCK)}
        self._numbers = itertools.count()
        if isinstance(importer, Importer):
            self.importer = importer
        elif isinstance(importer, (list, tuple)):
            self.importer = OrderedImporter(*importer)
        else:
            raise TypeError(
                "importer arg should be an Importer or a sequence of Importers, got " + type(importer).__name__
            )

    # ---- what is to happen with modules

    def _add_pattern(self, action, include, exclude, allow_empty=True):
        self.patterns[GlobGroup(include, exclude=exclude)] = [action, allow_empty, False]

    def intern(self, include, *, exclude=(), allow_empty=True):
        """Put the modules that match into the package, with what they need."""
        self._add_pattern(_Action.INTERN, include, exclude, allow_empty)

    def extern(self, include, *, exclude=(), allow_empty=True):
        """Let the package use these modules from where it is opened."""
        self._add_pattern(_Action.EXTERN, include, exclude, allow_empty)

    def mock(self, include, *, exclude=(), allow_empty=True):
        """Put stand-ins of these modules into the package, whose use is an error."""
        self._add_pattern(_Action.MOCK, include, exclude, allow_empty)

    def deny(self, include, *, exclude=()):
        """Make it an error that the package needs one of these modules."""
        self._add_pattern(_Action.DENY, include, exclude)

    def _register(self, action, hook):
        handle = RemovableHandle(self._hooks[action])
        self._hooks[action][handle.id] = hook
        return handle

    def register_extern_hook(self, hook):
        """Call hook(exporter, name) for each module that stays outside."""
        return self._register(_Action.EXTERN, hook)

    def register_mock_hook(self, hook):
        """Call hook(exporter, name) for each module that is mocked."""
        return self._register(_Action.MOCK, hook)

    def register_intern_hook(self, hook):
        """Call hook(exporter, name) for each module that is put in."""
        return self._register(_Action.INTERN, hook)

    @staticmethod
    def _can_implicitly_extern(name):
        top = name.partition(".")[0]
        if top in ("torch", "mica"):
            return True
        return top not in DISALLOWED_MODULES and (top in sys.stdlib_module_names or top in sys.builtin_module_names)

    def add_dependency(self, module_name, dependencies=True):
        """Note that the package needs a module, and apply the rule that matches it."""
        if self.dependency_graph.nodes.get(module_name, {}).get("provided"):
            return
        add = self.dependency_graph.add_node
        if module_name == "torch_package_importer":
            add(module_name, action=_Action.SKIP, provided=True)
        elif module_name == "_mock":
            add(module_name, action=_Action.REPACKAGED_MOCK_MODULE, provided=True)
        elif self._can_implicitly_extern(module_name):
            add(module_name, action=_Action.EXTERN, provided=True)
        else:
            for pattern, info in self.patterns.items():
                if pattern.matches(module_name):
                    info[2] = True
                    add(module_name, action=info[0], provided=True)
                    if info[0] is _Action.DENY:
                        add(module_name, error=PackagingErrorReason.DENIED)
                    elif info[0] is _Action.INTERN:
                        self._intern(module_name, dependencies)
                    return
            add(module_name, error=PackagingErrorReason.NO_ACTION)

    def _module_exists(self, name):
        try:
            self.importer.import_module(name)
        except Exception:  # a module whose import fails does not count
            return False
        return True

    def _source(self, module):
        """(source, None), or (None, why there is none)."""
        loader = getattr(module, "__loader__", None)
        if hasattr(loader, "get_source"):
            try:
                source = loader.get_source(module.__name__)
            except (ImportError, OSError, KeyError):
                source = None
            if source is not None:
                return source, None
        path = getattr(module, "__file__", None)
        if path is None:
            return None, PackagingErrorReason.NO_DUNDER_FILE
        if path.endswith((".so", ".pyd", ".dylib", ".dll")):
            return None, PackagingErrorReason.IS_EXTENSION_MODULE
        return None, PackagingErrorReason.SOURCE_FILE_NOT_FOUND

    def _intern(self, name, dependencies):
        module = self.importer.import_module(name)
        is_package = hasattr(module, "__path__")
        source, error = self._source(module)
        facts = {"action": _Action.INTERN, "is_package": is_package, "provided": True}
        if source is None:
            context = f"filename: {module.__file__}" if getattr(module, "__file__", None) else None
            self.dependency_graph.add_node(name, **facts, error=error, error_context=context)
            return
        self.dependency_graph.add_node(name, **facts, source=source)
        if dependencies:
            self._follow(name, source, is_package)

    def _follow(self, name, source, is_package):
        for each in self._dependencies(source, name, is_package):
            self.dependency_graph.add_edge(name, each)
            self.add_dependency(each)

    def _dependencies(self, source, name, is_package):
        package = name if is_package else name.rpartition(".")[0]
        try:
            pairs = find_files_source_depends_on(source, package)
        except Exception as error:
            reason = PackagingErrorReason.DEPENDENCY_RESOLUTION_FAILED
            self.dependency_graph.add_node(name, error=reason, error_context=str(error))
            return []
        found = {}
        for module, member in pairs:
            # `from package import module` needs the module; `from module import thing` the module.
            if member is not None and self._module_exists(f"{module}.{member}"):
                found[f"{module}.{member}"] = True
            elif self._module_exists(module):
                found[module] = True
        return list(found)

    # ---- what is put in

    def save_module(self, module_name, dependencies=True):
        """Put a module in, whatever the patterns say."""
        if not isinstance(module_name, str):
            raise TypeError("save_module() expects a string input, did you perhaps mean to pass `__name__`?")
        self._intern(module_name, dependencies)

    def save_source_string(self, module_name, src, is_package=False, dependencies=True):
        """Put a module of this source in."""
        facts = {"source": src, "is_package": is_package, "provided": True, "action": _Action.INTERN}
        self.dependency_graph.add_node(module_name, **facts)
        if dependencies:
            self._follow(module_name, src, is_package)

    def save_source_file(self, module_name, file_or_directory, dependencies=True):
        """Put a file in as a module, or a folder of them as a package."""
        path = os.fspath(file_or_directory)
        if os.path.isdir(path):
            waiting = []
            for folder, folders, files in os.walk(path):
                folders.sort()
                inner = os.path.relpath(folder, path)
                parts = [module_name] if inner == "." else [module_name, *inner.split(os.sep)]
                for file in sorted(each for each in files if each.endswith(".py")):
                    is_package = file == "__init__.py"
                    name = ".".join(parts if is_package else [*parts, file.removesuffix(".py")])
                    waiting.append((name, os.path.join(folder, file), is_package))
        else:
            waiting = [(module_name, path, os.path.basename(path) == "__init__.py")]
        for name, file, is_package in waiting:
            with open(file, encoding="utf-8") as opened:
                self.save_source_string(name, opened.read(), is_package, dependencies)

    def save_pickle(self, package, resource, obj, dependencies=True, pickle_protocol=3):
        """Put an object in, and the modules of its classes."""
        if pickle_protocol not in (3, 4):
            raise AssertionError(f"torch.package only supports pickle protocols 3 and 4, got {pickle_protocol}")
        # Names of classes stand in pickles of protocol 3 in one piece; they are read by either protocol.
        data = pickled(obj, self.importer, 3, self._storage_id, self)
        node = f"<{package}.{resource}>"
        self.dependency_graph.add_node(node, action=_Action.INTERN, provided=True, is_pickle=True)
        if dependencies:
            self._note_modules(node, data, package, resource)
        self._write(self._path(package, resource), data)

    def _note_modules(self, node, data, package, resource):
        fields = {}
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "GLOBAL":
                module, _, field = argument.partition(" ")
                fields.setdefault(module, []).append(field)
        for module, names in fields.items():
            self.dependency_graph.add_edge(node, module)
            matching = (info for pattern, info in self.patterns.items() if pattern.matches(module))
            if not self._can_implicitly_extern(module) and next(matching, [None])[0] is _Action.MOCK:
                self.dependency_graph.add_node(
                    module,
                    action=_Action.MOCK,
                    error=PackagingErrorReason.MOCKED_BUT_STILL_USED,
                    error_context=f"Object(s) '{names}' from module `{module}` was mocked out during packaging but is being "
                    f"used in resource - `{resource}` in package `{package}`. ",
                    provided=True,
                )
            else:
                self.add_dependency(module)

    def _storage_id(self, storage):
        kind, key, location, count = self._storages.describe(storage)
        if key not in self._stored:
            self._stored.add(key)
            held = self._storages.bytes_of(key)
            self._write(f".data/{key}.storage", held, held.nbytes())
        return ("storage", kind, int(key), location, count)

    def save_text(self, package, resource, text):
        """Put text in."""
        self.save_binary(package, resource, text.encode("utf-8"))

    def save_binary(self, package, resource, binary):
        """Put bytes in."""
        self._write(self._path(package, resource), binary)

    def get_unique_id(self):
        """A number of this package's that has not been given out."""
        return str(next(self._numbers))

    @staticmethod
    def _path(package, resource):
        if os.path.split(resource)[0] or not resource:
            raise ValueError(f"{resource!r} must be only a file name")
        return f"{package.replace('.', '/')}/{resource}"

    def _write(self, name, content, size=None):
        if name in self._written:
            raise AssertionError(f"Tried to write file '{name}', but it already exists in this archive. ")
        self._written.add(name)
        if isinstance(content, str):
            content = content.encode("utf-8")
        self.zip_file.write_record(name, content, len(content) if size is None else size)

    # ---- the end

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is not None:
            self._finish(abandon=True)
            return
        self.close()

    def close(self):
        """Write the modules and finish the file; where something is missing, no file is left."""
        try:
            self._check()
            self._write_modules()
        except BaseException:
            self._finish(abandon=True)
            raise
        self._write(".data/python_version", platform.python_version())
        self._write(".data/version", "6\n")
        self._finish()

    def _finish(self, abandon=False):
        if abandon:
            self.zip_file._abandon()
        else:
            self.zip_file.write_end_of_file()
        if self.buffer is not None and hasattr(self.buffer, "flush"):
            self.buffer.flush()

    def _check(self):
        if any(facts.get("error") is not None for facts in self.dependency_graph.nodes.values()):
            raise PackagingError(self.dependency_graph, debug=self.debug)
        for pattern, (action, allow_empty, matched) in self.patterns.items():
            if not allow_empty and not matched:
                raise EmptyMatchError(
                    f"Exporter did not match any modules to {pattern}, which was marked as allow_empty=False"
                    f" ({action.name.lower()})"
                )

    def _write_source(self, name, source, is_package):
        self._write(name.replace(".", "/") + ("/__init__.py" if is_package else ".py"), source)

    def _write_modules(self):
        extern, with_mocks = [], False
        for name, facts in list(self.dependency_graph.nodes.items()):
            action = facts.get("action")
            for hook in self._hooks.get(action, {}).values() if not facts.get("is_pickle") else ():
                hook(self, name)
            if action is _Action.EXTERN:
                extern.append(name)
            elif action is _Action.MOCK:
                with_mocks = True
                is_package = hasattr(self.importer.import_module(name), "__path__")
                self._write_source(name, _mocked.MODULE, is_package)
            elif action is _Action.REPACKAGED_MOCK_MODULE:
                with_mocks = True
            elif action is _Action.INTERN and not facts.get("is_pickle"):
                self._write_source(name, facts["source"], facts["is_package"])
        if with_mocks:
            self._write("_mock.py", _mocked.OBJECTS)
        self._write(".data/extern_modules", "\n".join(extern) + "\n")

    # ---- facts

    def _names_of(self, action):
        nodes = self.dependency_graph.nodes.items()
        return sorted(name for name, facts in nodes if facts.get("action") is action and not facts.get("is_pickle"))

    def externed_modules(self):
        """The modules that stay outside."""
        return self._names_of(_Action.EXTERN)

    def interned_modules(self):
        """The modules that are put in."""
        return self._names_of(_Action.INTERN)

    def mocked_modules(self):
        """The modules that are mocked."""
        return self._names_of(_Action.MOCK)

    def denied_modules(self):
        """The modules that are needed and denied."""
        return self._names_of(_Action.DENY)

    def get_rdeps(self, module_name):
        """What needs a module."""
        return self.dependency_graph.predecessors(module_name)

    def all_paths(self, src, dst):
        """How one module needs another, in the language of graphviz."""
        return self.dependency_graph.all_paths(src, dst)

    def dependency_graph_string(self):
        """What needs what, in the language of graphviz."""
        return self.dependency_graph.to_dot()
