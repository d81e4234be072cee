"""torch's testing utilities on top of Mica: the modules of torch.testing._internal are executed from torch's wheel, where `torch` is Mica.

They and torch's test files import at their top what Mica does not have, and need most of it for few tests. Such a name
becomes a stand-in here, whose use is the error: it fails the tests that use it, and no others. An import within a
function is the test's own, and fails as it would in a program.
"""

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path

import compilers
import masks

# Modules of the wheel beside torch.testing._internal: the classes that compare are utilities too.
_WHEELS_OWN = (
    "torch.testing._internal",
    "torch.testing._comparison",
    "torch.testing._utils",
    "torch.utils._import_utils",
    "torch._dynamo.test_case",
    "torch._dynamo.testing",
    "torch._inductor.test_case",
)
# Modules of which Mica has the part that programs use; a test gets Mica's.
_IN_PART = ("torch._dynamo.testing",)
_ROOTS = ("torch", "functorch", "torchgen")

# What the utilities and test files call when they are loaded, and its answer. Tests do not depend on it, but without it
# none would run.
_CALLED_AT_ONCE = {
    "backends.disable_global_flags": None,
    "_C._get_cpu_capability": "DEFAULT",
    "_utils._is_privateuse1_backend_available": False,
    "cpu._is_avx2_supported": True,  # which tests of flexible attention ask for
    "_nnpack_available": False,
    # Whether vmap warns of its slow way; test classes put it back.
    "_C._debug_only_are_vmap_fallback_warnings_enabled": False,
    "_C._debug_only_display_vmap_fallback_warnings": None,
    "_C._DisableFuncTorch": contextlib.nullcontext(),
    # Test classes that are derived from those of TorchScript set up and clear its hooks, whatever they test.
    "_C._jit_set_emit_hooks": None,
    "_C._jit_clear_class_registry": None,
    "jit._recursive.ConcreteTypeStore": None,
    "jit._state._clear_class_state": None,
    "_library.opaque_object.register_opaque_type": None,
    "fx.experimental._config.patch": lambda given: given,
    "_dynamo.utils.disable_cache_limit": lambda given: given,
    "_C._add_docstr": None,
    "autograd._force_original_view_tracking": None,
    # Said of each test that fails, and before those of lazy tensors, which then fail by themselves.
    "_logging.scribe.open_source_signpost": None,
    "_lazy.ts_backend.init": None,
    "utils._pallas.has_pallas_package": False,
    "_higher_order_ops.InvokeQuant": None,
    "utils._pallas.has_cpu_pallas": False,
    "utils._pallas.has_cuda_pallas": False,
    "utils._pallas.has_tpu_pallas": False,
    "utils._helion.has_helion": False,
    "_inductor.utils.get_gpu_type": "cuda",
    "cuda.jiterator._create_jit_fn": len,  # whatever is a function: it stands for operators of CUDA
    "cuda.jiterator._create_multi_output_jit_fn": len,
}

# Decorators that mark what they are given for a compiler.
_MARKS = ("mark_subclass_constructor_exportable_experimental", "_disable_dynamo", "mark_compile_region")
# Names that functions use without importing them, where these functions run when the files are loaded.
_NAMED_BY_FUNCTIONS = (
    "torch._refs",
    "torch._prims",
    "torch._foreach_mm",
    "torch._C._functorch.TransformType",
    "torch._dynamo.eval_frame.unsupported",
)


def _mark(marked=None, **options):
    return marked or (lambda given: given)


class StandIn:
    """A name that Mica does not have. It can be named, subclassed and compared; calling it is the error."""

    __all__ = ()  # where it stands for a module

    def __init__(self, name):
        self._name = name
        self.__name__ = self.__qualname__ = name.rpartition(".")[2]

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self._name} is not in Mica")

    def __getattr__(self, name):
        if name.startswith("__") or name == "parametrize_fn":  # by which the utilities know a test
            raise AttributeError(f"{self._name} is not in Mica, and has no attribute {name!r}")
        return StandIn(f"{self._name}.{name}")

    def __instancecheck__(self, instance):
        return False

    __subclasscheck__ = __instancecheck__

    def __mro_entries__(self, bases):
        return ()

    def __or__(self, other):
        return self

    __ror__ = __getitem__ = __or__

    def __iter__(self):
        return iter(())

    def __deepcopy__(self, memo):
        return self


class StandInModule(types.ModuleType):
    """A module that Mica does not have."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.__name__}.{name}")

    def __deepcopy__(self, memo):
        return self


def module_or_stand_in(name):
    """The module of that name. Where Mica has none, a stand-in hangs on its package, so that `torch.x.y` can be said."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package, _, own = name.rpartition(".")
        holder = module_or_stand_in(package)
        if "torch.ops" in (name, package):  # objects that are no modules
            return getattr(holder, own)
        if not isinstance(vars(holder).get(own), StandInModule):
            setattr(holder, own, StandInModule(name))
        return vars(holder)[own]


def imported(module, name):
    """What `from module import name` binds."""
    if name in _MARKS:
        return _mark
    if module == "torch._vendor.packaging":  # the package's own, by which versions of SciPy are compared
        return importlib.import_module(f"packaging.{name}")
    holder = module_or_stand_in(module)
    try:
        return getattr(holder, name)
    except AttributeError:
        try:
            return importlib.import_module(f"{module}.{name}")
        except ImportError:
            return StandIn(f"{module}.{name}")


def attribute(chain):
    """The value of `torch.x.y`, which is said at the top of a file or in the body of a class."""
    value = sys.modules["torch"]
    for name in chain.split(".")[1:]:
        try:
            value = getattr(value, name)
        except AttributeError:
            value = _mark if name in _MARKS else StandIn(f"{getattr(value, '__name__', chain)}.{name}")
    return value


def _is_torchs(name):
    return name is not None and name.partition(".")[0] in _ROOTS


def _chain_of(node):
    """ "torch.x.y" where the expression says that, and None elsewhere."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    root = {"torch": "torch", "Tensor": "torch.Tensor"}.get(node.id) if isinstance(node, ast.Name) else None
    return ".".join([root, *reversed(names)]) if root else None


class _Lenient(ast.NodeTransformer):
    """Rewrites imports at the top of a file, within `if` too, and what is evaluated there, to calls of the functions above."""

    def __init__(self, package=None):
        self.package = package  # that the file is in, where its relative imports are of torch's

    def visit_FunctionDef(self, node):
        """Decorators and defaults are evaluated with the file; the body is the test's own."""
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        node.args.defaults = [self.visit(default) for default in node.args.defaults]
        node.args.kw_defaults = [default and self.visit(default) for default in node.args.kw_defaults]
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            argument.annotation = argument.annotation and self.visit(argument.annotation)
        node.returns = node.returns and self.visit(node.returns)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Try(self, node):
        return node

    def visit_Lambda(self, node):
        return node

    def visit_Attribute(self, node):
        if not isinstance(node.ctx, ast.Load) or (chain := _chain_of(node)) is None:
            return self.generic_visit(node)
        call = ast.parse(f"__import__({__name__!r}).attribute({chain!r})", mode="eval").body
        for inner in ast.walk(call):
            ast.copy_location(inner, node)
        return call

    def visit_ImportFrom(self, node):
        module = node.module
        if node.level and self.package:
            module = importlib.util.resolve_name("." * node.level + (module or ""), self.package)
        elif node.level:
            return node
        if not _is_torchs(module) or any(alias.name == "*" for alias in node.names):
            return node
        return [self._call(node, a.asname or a.name, f"imported({module!r}, {a.name!r})") for a in node.names]

    def visit_Import(self, node):
        statements = []
        for alias in node.names:
            if not _is_torchs(alias.name):
                statements.append(ast.copy_location(ast.Import([alias]), node))
                continue
            statements.append(self._call(node, alias.asname, f"module_or_stand_in({alias.name!r})"))
            if not alias.asname:
                root = alias.name.partition(".")[0]
                statements.append(self._call(node, root, f"module_or_stand_in({root!r})"))
        return statements

    def _call(self, node, target, call):
        text = f"__import__({__name__!r}).{call}"
        statement = ast.parse(f"{target} = {text}" if target else text).body[0]
        for inner in ast.walk(statement):
            ast.copy_location(inner, node)
        return statement


class _Utilities(_Lenient):
    """The same, and imports in the bodies of functions: what a utility compares with is not what a test uses."""

    def visit_FunctionDef(self, node):
        node = super().visit_FunctionDef(node)
        node.body = [each for given in node.body for each in _listed(_ImportsOnly(self.package).visit(given))]
        return node


class _ImportsOnly(_Lenient):
    """Imports wherever they stand."""

    def visit_FunctionDef(self, node):
        return self.generic_visit(node)

    visit_Attribute = visit_FunctionDef


def _listed(nodes):
    return nodes if isinstance(nodes, list) else [nodes]


class _Deep(_Lenient):
    """The same in the bodies of functions too."""

    def visit_FunctionDef(self, node):
        return self.generic_visit(super().visit_FunctionDef(node))


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a file whose imports at the top are lenient. No bytecode of it is kept: that would be of other imports."""

    rewriting = _Lenient

    def get_code(self, name):
        source = self.get_source(name)
        package = name.rpartition(".")[0] if name.startswith(("torch._dynamo.", "torch._inductor.")) else None
        return compile(ast.fix_missing_locations(self.rewriting(package).visit(ast.parse(source))), self.path, "exec")

    def exec_module(self, module):
        super().exec_module(module)
        if module.__name__ in _IN_PART:
            ours = importlib.import_module("mica" + module.__name__.removeprefix("torch"))
            vars(module).update({name: getattr(ours, name) for name in ours.__all__})


def _take_lists_of_overrides(wheel):
    """torch.overrides has two functions for tests, lists of torch's functions. They are the wheel's, of those that Mica has."""
    loader = _Loader("torch.testing._internal.overrides", str(wheel / "torch" / "overrides.py"))
    loader.rewriting = _Deep
    module = types.ModuleType(loader.name)
    exec(loader.get_code(loader.name), module.__dict__)
    backends = module_or_stand_in("torch.utils.backend_registration")
    if not isinstance(getattr(backends, "_privateuse1_backend_name", None), str):
        backends._privateuse1_backend_name = "privateuseone"
    overrides = sys.modules["torch.overrides"]
    overrides.get_ignored_functions = module.get_ignored_functions
    functions = {f: made for f, made in module.get_testing_overrides().items() if not isinstance(f, StandIn)}
    overrides.get_testing_overrides = lambda: functions
    overridable = overrides.get_overridable_functions
    # A test asserts that the list has every function. Mica has others, which torch's list cannot know.
    overrides.get_overridable_functions = lambda: {
        owner: [f for f in found if f in functions] for owner, found in overridable().items()
    }


def _pass_over_libraries_of_tests():
    """Test classes load libraries that torch's build makes for a few of their tests, which then fail by themselves."""
    ops = sys.modules["torch"].ops
    load = ops.load_library
    ops.load_library = lambda path: None if Path(path).name == "libtorchbind_test.so" else load(path)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, wheel, tests):
        self._wheel, self._tests = wheel, tests

    def find_spec(self, name, path=None, target=None):
        if self._wheel and any(name == own or name.startswith(f"{own}.") for own in _WHEELS_OWN):
            spec = self._lenient(name, self._wheel)
            if spec is not None:
                spec.loader.rewriting = _Utilities
            return spec
        if name.partition(".")[0] not in (*_ROOTS, "mica"):
            for folder in self._tests:
                if spec := self._lenient(name, folder):
                    return spec
        return None

    def _lenient(self, name, folder):
        place = folder.joinpath(*name.split("."))
        if place.is_dir():
            package = place / "__init__.py"
            if not package.exists():
                return None
            options = {"submodule_search_locations": [str(place)]}
            return importlib.util.spec_from_file_location(name, package, loader=_Loader(name, str(package)), **options)
        file = place.with_suffix(".py")
        if not file.exists():
            return None
        return importlib.util.spec_from_file_location(name, file, loader=_Loader(name, str(file)))


def _give(name, value):
    """Let torch's testing utilities find a name that Mica does not have."""
    module, _, own = f"torch.{name}".rpartition(".")
    if not hasattr(holder := module_or_stand_in(module), own) or isinstance(holder, StandInModule):
        setattr(holder, own, value)


def be_lenient(tests):
    """On torch itself: let test files name at their top what this version of torch has no more; the tests that use it fail."""
    importlib.import_module("torch")
    sys.meta_path.insert(0, _Finder(None, [Path(folder) for folder in tests]))
    sys.modules.setdefault("utilities", sys.modules[__name__])


def install(wheel, tests):
    """Let torch be Mica, and its testing utilities those of the wheel.

    Args:
        wheel: the folder that holds the package torch of the wheel
        tests: the folders in which test files find one another
    """
    from mica._as_torch import alias

    alias.install()
    for name, answer in _CALLED_AT_ONCE.items():
        _give(name, lambda *args, _answer=answer, **kwargs: _answer)
    for name, value in (compilers.given() | masks.given(Path(wheel))).items():
        _give(name, value)
    for name in _WHEELS_OWN:
        importlib.import_module(name.rpartition(".")[0])  # which imports Mica's own under this name, where there is one
        sys.modules.pop(name, None)
    importlib.import_module("torch.overrides")
    _pass_over_libraries_of_tests()
    _take_lists_of_overrides(Path(wheel))
    for name in _NAMED_BY_FUNCTIONS:
        module_or_stand_in(name)
    # By loading an empty program the utilities ask for a compiler; tests that need Inductor's fail by themselves.
    module_or_stand_in("torch._inductor.codecache").CppCodeCache = types.SimpleNamespace(load=lambda source: None)
    sys.meta_path.insert(0, _Finder(Path(wheel), [Path(folder) for folder in tests]))
    sys.modules.setdefault("utilities", sys.modules[__name__])
    for name in ("torch.testing._utils", "torch.utils._mode_utils"):  # which tests name as attributes
        importlib.import_module(name)
