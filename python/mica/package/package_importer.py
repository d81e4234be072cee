"""Reads packages: modules are loaded from the file, apart from those that it names as somebody else's."""

import builtins
import contextlib
import importlib.machinery
import importlib.util
import io
import linecache
import os
import pickle

from mica import _C
from mica._checkpoints.locations import restorer
from mica._checkpoints.names import find_class, is_torch_module
from mica._checkpoints.reader import _storage_of, _storage_reference, record_bytes
from mica.package._mangling import PackageMangler, demangle
from mica.package.file_structure_representation import directory_of
from mica.package.importer import Importer, sys_importer
from mica.storage import TypedStorage

__all__ = ["PackageImporter"]

_EVERYWHERE = ("builtins", "_codecs", "collections", "copyreg", "numpy")  # modules that pickles use without naming them


class _Folder:
    """A package that was unpacked into a folder."""

    def __init__(self, path):
        self._path = path

    def get_all_records(self):
        for folder, _, files in os.walk(self._path):
            for each in files:
                yield os.path.relpath(os.path.join(folder, each), self._path).replace(os.sep, "/")

    def has_record(self, name):
        return os.path.isfile(os.path.join(self._path, name))

    def read(self, name):
        with open(os.path.join(self._path, name), "rb") as file:
            return file.read()


class _Archive:
    def __init__(self, file, shown):
        data = file if isinstance(file, (bytes, bytearray)) else file.read()
        self._reader = _C.PyTorchFileReader(memoryview(data), shown)
        self.has_record, self.get_all_records = self._reader.has_record, self._reader.get_all_records

    def read(self, name):
        if not self._reader.has_record(name):
            raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found")
        return bytes(record_bytes(self._reader, name))


class PackageImporter(Importer):
    """Imports modules and loads objects from a package. module_allowed(name) says which modules from outside it may use."""

    def __init__(self, file_or_buffer, module_allowed=lambda module_name: True):
        if isinstance(file_or_buffer, (str, os.PathLike)):
            self.filename = os.fspath(file_or_buffer)
            if os.path.isdir(self.filename):
                self.zip_reader = _Folder(self.filename)
            else:
                with open(self.filename, "rb") as file:
                    self.zip_reader = _Archive(file, self.filename)
        else:
            self.filename = "<binary>"
            self.zip_reader = _Archive(file_or_buffer, self.filename)
        self._mangler = PackageMangler()
        self.modules = {"torch_package_importer": self}
        self.extern_modules = self.zip_reader.read(".data/extern_modules").decode("utf-8").splitlines()
        for name in self.extern_modules:
            if not module_allowed(name):
                raise ImportError(
                    f"package '{file_or_buffer}' needs the external module '{name}' but that module has been disallowed"
                )
        self._sources, self._packages = {}, set()
        for path in self.zip_reader.get_all_records():
            if not path.startswith(".data/"):
                self._add(path)
        self._builtins = {**vars(builtins), "__import__": self.__import__}
        self.last_map_location = None

    def _add(self, path):
        folder, _, file = path.rpartition("/")
        place = folder.replace("/", ".")
        while place:  # every folder of the package is importable
            self._packages.add(place)
            place = place.rpartition(".")[0]
        if file == "__init__.py":
            self._sources[folder.replace("/", ".")] = path
        elif file.endswith(".py"):
            name = path.removesuffix(".py").replace("/", ".")
            self._sources.setdefault(name, path)

    # ---- modules

    def id(self):
        """The name under which the package's modules stand."""
        return self._mangler.parent_name()

    def __repr__(self):
        return f"PackageImporter({self.filename!r})"

    def _is_extern(self, name):
        if name in _EVERYWHERE or name.partition(".")[0] in ("torch", "mica"):
            return True
        return any(name == each or name.startswith(each + ".") for each in self.extern_modules)

    def import_module(self, name, package=None):
        """A module of the package, which is loaded now if it has not been; or one of those outside that it names."""
        name = self._mangler.demangle(name)
        if name in self.modules:
            return self.modules[name]
        if name not in self._sources and name not in self._packages:
            if not self._is_extern(name):
                raise ModuleNotFoundError(
                    f"No module named '{name}' in self-contained archive '{self.filename}' and the module is also not in "
                    f"the list of allowed external modules: {self.extern_modules}",
                    name=name,
                )
            module = self.modules[name] = sys_importer.import_module(name)
            return module
        parent = name.rpartition(".")[0]
        if parent:
            self.import_module(parent)
            if name in self.modules:  # the parent has imported it
                return self.modules[name]
        return self._load(name, parent)

    def _load(self, name, parent):
        path = self._sources.get(name)
        is_package = name in self._packages or (path or "").endswith("/__init__.py")
        spec = importlib.machinery.ModuleSpec(name, self, origin="<package_importer>", is_package=is_package)
        module = importlib.util.module_from_spec(spec)
        module.__name__ = self._mangler.mangle(name)
        module.__package__ = self._mangler.mangle(name if is_package else parent) if is_package or parent else ""
        module.__file__ = self._mangler.mangle(path) if path else None
        module.__builtins__ = self._builtins
        module.__torch_package__ = True
        self.modules[name] = module
        if parent:
            setattr(self.modules[parent], name.rpartition(".")[2], module)
        if path is None:
            return module
        source = self.zip_reader.read(path).decode("utf-8")
        lines = source.splitlines(keepends=True)
        linecache.cache[module.__file__] = (len(source), None, lines, module.__file__)
        try:
            exec(compile(source, module.__file__, "exec", dont_inherit=True), vars(module))
        except BaseException:
            del self.modules[name]
            raise
        return self.modules[name]

    def create_module(self, spec):
        return None

    def get_source(self, module_name):
        """The source of a module of the package."""
        return self.zip_reader.read(self._sources[demangle(module_name)]).decode("utf-8")

    def __import__(self, name, globals=None, locals=None, fromlist=(), level=0):
        """What `import` does in the package's modules."""
        if level:
            base = demangle(globals.get("__package__") or globals["__name__"])
            name = importlib.util.resolve_name("." * level + name, base)
        module = self.import_module(name)
        if not fromlist:
            return module if level else self.import_module(name.partition(".")[0])
        if isinstance(getattr(module, "__path__", None), list) or name in self._packages:
            for each in fromlist:
                if (
                    each != "*"
                    and not hasattr(module, each)
                    and f"{name}.{each}" in self._sources.keys() | self._packages
                ):
                    self.import_module(f"{name}.{each}")
                elif each != "*" and not hasattr(module, each) and self._is_extern(name):
                    self._try_import(f"{name}.{each}")
        return module

    def _try_import(self, name):
        with contextlib.suppress(ModuleNotFoundError):  # `from` itself reports what is missing
            self.import_module(name)

    # ---- resources

    @staticmethod
    def _path(package, resource):
        path = f"{package.replace('.', '/')}/{resource}" if package else resource
        if ".." in path.split("/"):
            raise RuntimeError(f"{path!r} is not a name within a package")
        return path

    def load_binary(self, package, resource):
        """The bytes of a resource."""
        return self.zip_reader.read(self._path(package, resource))

    def load_text(self, package, resource, encoding="utf-8", errors="strict"):
        """A resource as text."""
        return self.load_binary(package, resource).decode(encoding, errors)

    def load_pickle(self, package, resource, map_location=None):
        """The object in a resource; its classes come from the package. This runs the package's code."""
        restore, storages, reduced = restorer(map_location), {}, {}

        def storage(saved):
            _, kind, key, location, count = saved
            dtype, _, location, count, _ = _storage_reference(("storage", kind, str(key), location, count), (5,))
            if key not in storages:
                data = self.zip_reader.read(f".data/{key}.storage")
                if len(data) < count * dtype.itemsize:
                    raise RuntimeError(f"storage {key} has {len(data)} bytes, not {count} elements of {dtype}")
                storages[key] = restore(_storage_of(data), location)
            return TypedStorage(wrap_storage=storages[key], dtype=dtype, _internal=True)

        def persistent_load(saved):
            if isinstance(saved, tuple) and len(saved) == 5 and saved[0] == "storage":
                return storage(saved)
            if isinstance(saved, tuple) and len(saved) in (3, 4) and saved[0] == "reduce_package":
                *_, function, arguments = saved
                number = saved[1] if len(saved) == 4 else object()
                if number not in reduced:
                    reduced[number] = function(self, *arguments)
                return reduced[number]
            raise pickle.UnpicklingError(f"Unknown typename for persistent_load in {saved!r:.100}")

        importer = self

        class Unpickler(pickle.Unpickler):
            def find_class(self, module, name):
                if is_torch_module(module) and module.startswith("torch"):
                    return find_class(module, name)
                found = importer.import_module(module)
                for part in name.split("."):
                    found = getattr(found, part)
                return found

        unpickler = Unpickler(io.BytesIO(self.load_binary(package, resource)))
        unpickler.persistent_load = persistent_load
        self.last_map_location = map_location
        try:
            return unpickler.load()
        finally:
            self.last_map_location = None

    # ---- facts

    def file_structure(self, *, include="**", exclude=()):
        """The package's files as a tree."""
        return directory_of(self.filename, self.zip_reader.get_all_records(), include, exclude)

    def python_version(self):
        """The version of Python that wrote the package; None where it does not say."""
        if not self.zip_reader.has_record(".data/python_version"):
            return None
        return self.zip_reader.read(".data/python_version").decode("utf-8").strip()

    def get_resource_reader(self, fullname):
        """For importlib.resources: the resources of one of the packages within."""
        name = demangle(fullname)
        return _Resources(self, name) if name in self._packages else None


class _Resources:
    def __init__(self, importer, name):
        self._importer, self._folder = importer, name.replace(".", "/")

    def open_resource(self, resource):
        return io.BytesIO(self._importer.zip_reader.read(f"{self._folder}/{resource}"))

    def resource_path(self, resource):
        raise FileNotFoundError(f"{resource} lies in a package, not in a file of its own")

    def is_resource(self, name):
        return self._importer.zip_reader.has_record(f"{self._folder}/{name}")

    def contents(self):
        start = self._folder + "/"
        inside = (
            each.removeprefix(start) for each in self._importer.zip_reader.get_all_records() if each.startswith(start)
        )
        return iter(dict.fromkeys(each.partition("/")[0] for each in inside))
