"""Making graphs: a function or module is run with proxies."""

import builtins
import collections
import copy
import functools
import inspect
import math
import types

import mica
from mica.fx._patches import Patches
from mica.fx._root_arguments import PH, PHBase, PHWithMeta, RootArguments, _assert_is_none, as_python  # noqa: F401
from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule
from mica.fx.node import map_aggregate
from mica.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase
from mica.nn import Module

__all__ = ["PH", "ProxyableClassMeta", "Tracer", "symbolic_trace", "wrap"]

_tracing = [False]
_wrapped_fns_to_patch = {}  # (id of globals, name) -> globals
_wrapped_methods_to_patch = []  # (class, name of a method whose calls are recorded)


def is_fx_tracing():
    """Whether something is being traced."""
    return _tracing[0]


is_fx_symbolic_tracing = is_fx_tracing


def _parameter_proxy(tracer, name, parameter, node):
    return ParameterProxy(tracer, node, name, parameter)


class ProxyableClassMeta(type):
    """The type of classes whose making is recorded when an argument is a proxy."""

    def __call__(cls, *args, **kwargs):
        found = _find_proxy(args, kwargs)
        if found is not None:
            return found.tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def _find_proxy(*objects):
    found = []

    def look(value):
        if isinstance(value, Proxy):
            found.append(value)
        return value

    map_aggregate(objects, look)
    return found[0] if found else None


def wrap(fn_or_name):
    """Record calls of a function of this module instead of tracing into it."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe().f_back
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


def _recording(function):
    """A function that records its call when an argument is a proxy."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        found = _find_proxy(args, kwargs)
        if found is None:
            return function(*args, **kwargs)
        made = found.tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    wrapped._fx_wrapped = True
    return wrapped


def _recording_method(cls, name):
    """A method that records its call when an argument is a proxy."""
    original = getattr(cls, name)

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        found = _find_proxy(args, kwargs)
        if found is None:
            return original(*args, **kwargs)
        return found.tracer.create_proxy("call_method", name, args, kwargs)

    return wrapped


def _restore_short_ways(cls):
    """Classes of modules that have had a __getattr__ or __call__ in Python look up members and call in C again."""
    prepare = vars(mica._C._ModuleBase)["__init_subclass__"]
    for each in (cls, *cls.__subclasses__()):
        prepare.__get__(None, each)()
        if each is not cls:
            _restore_short_ways(each)


class Tracer(RootArguments, TracerBase):
    """Runs a function or module with proxies and keeps what was done as a graph."""

    def __init__(self, autowrap_modules=(math,), autowrap_functions=(), param_shapes_constant=False):
        self._autowrap = {id(value) for module in autowrap_modules for name, value in vars(module).items()
                          if not name.startswith("_") and callable(value)}  # fmt: skip
        self._autowrap |= {id(function) for function in autowrap_functions}
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths = None
        self.root_module_name = ""
        self.scope, self.module_stack, self.node_name_to_scope = Scope("", None), collections.OrderedDict(), {}
        self._qualname_counter = collections.Counter()

    # ---- to be overridden

    def is_leaf_module(self, m, module_qualified_name):
        """Whether a module is one step: those of torch.nn are, containers apart."""
        module = type(m).__module__
        return module.startswith(("mica.nn", "torch.nn", "mica.ao.nn", "torch.ao.nn")) and not isinstance(
            m, mica.nn.Sequential
        )

    def path_of_module(self, mod):
        """Where a module is in the root."""
        if self.submodule_paths is not None:
            path = self.submodule_paths.get(mod)
            if path is None:
                raise NameError(
                    f"module {type(mod).__name__} is not installed as a submodule: assign it to an attribute of the module "
                    "that is traced, in __init__"
                )
            return path
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError(
            f"module is not installed as a submodule: a {type(mod).__name__} was called that the traced module does not "
            "hold. Assign it to an attribute in __init__"
        )

    def call_module(self, m, forward, args, kwargs):
        """A call of a module: one step, or traced into."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))):
            self.module_stack[path or "self"] = (path, type(m))
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack.popitem()

    def getattr(self, attr, attr_val, parameter_proxy_cache):
        """An attribute of a module: parameters become steps."""

        def proxy_of(pairs):
            for name, value in pairs:
                if value is attr_val:
                    if name not in parameter_proxy_cache:
                        factory = (
                            functools.partial(_parameter_proxy, self, name, attr_val)
                            if self.param_shapes_constant
                            else None
                        )
                        parameter_proxy_cache[name] = self.create_proxy(
                            "get_attr", name, (), {}, proxy_factory_fn=factory
                        )
                    return parameter_proxy_cache[name]
            return None

        if isinstance(attr_val, mica.nn.Parameter):
            found = proxy_of(self.root.named_parameters())
        elif self.proxy_buffer_attributes and isinstance(attr_val, mica.Tensor):
            found = proxy_of(self.root.named_buffers())
        else:
            found = None
        return attr_val if found is None else found

    # ---- arguments

    def get_fresh_qualname(self, prefix):
        """A name that the root has no attribute of."""
        while hasattr(self.root, f"{prefix}{self._qualname_counter[prefix]}"):
            self._qualname_counter[prefix] += 1
        return f"{prefix}{self._qualname_counter[prefix]}"

    def create_arg(self, a):
        if isinstance(a, mica.nn.Parameter):
            for name, parameter in self.root.named_parameters():
                if a is parameter:
                    return self.create_node("get_attr", name, (), {})
            raise NameError(
                f"parameter is not a member of this module: one of shape {tuple(a.shape)} was used that the traced module "
                "does not hold. Assign it to an attribute in __init__"
            )
        if isinstance(a, mica.Tensor):
            for name, buffer in self.root.named_buffers():
                if a is buffer:
                    return self.create_node("get_attr", name, (), {})
            return self.create_node("get_attr", self._constant(a, "_tensor_constant"), (), {})
        if isinstance(type(a), ProxyableClassMeta):
            return self.create_node("get_attr", self._constant(a, f"_{type(a).__name__}_constant_"), (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(self.create_arg(each) for each in a), {})
        return super().create_arg(a)

    def _constant(self, value, prefix):
        name = self.tensor_attrs.get(id(value))
        if name is None:
            name = self.get_fresh_qualname(prefix)
            self.tensor_attrs[id(value)] = name
            setattr(self.root, name, value)
        return name

    # ---- tracing

    def trace(self, root, concrete_args=None):
        """The graph of a module or function; arguments given in `concrete_args` are fixed."""
        if isinstance(root, Module):
            self.root = root
            function = getattr(type(root), self.traced_func_name, None)
            if function is None:
                raise AssertionError(f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}")
            self.root_module_name = root._get_name()
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            self.root, function = Module(), as_python(root)
            self.submodule_paths = None
        self.graph = Graph(tracer_cls=getattr(self, "__class__", None))
        self.tensor_attrs = {}
        for module in self.root.modules():
            for name, value in vars(module).items():
                if isinstance(value, mica.Tensor):
                    path = self.submodule_paths[module] if self.submodule_paths else ""
                    self.tensor_attrs.setdefault(id(value), f"{path}.{name}" if path else name)
        if not isinstance(function, types.FunctionType):
            raise AssertionError(f"Expected FunctionType, got {type(function)}")
        code = function.__code__
        self.graph._co_fields = {
            name: getattr(code, name) for name in ("co_name", "co_filename", "co_firstlineno")
        }  # where its code comes from
        called, args = self.create_args_for_root(function, isinstance(root, Module), concrete_args)
        cache = {}
        original_call, original_getattr = Module.__call__, Module.__getattr__

        def module_getattr(module, name):
            value = original_getattr(module, name)
            return self.getattr(name, value, cache) if isinstance(value, mica.Tensor) else value

        def module_call(module, *call_args, **call_kwargs):
            def forward(*inner_args, **inner_kwargs):
                return original_call(module, *inner_args, **inner_kwargs)

            self._wrap_globals(patches, type(module).forward, module)
            return self.call_module(module, forward, call_args, call_kwargs)

        was, _tracing[0] = _tracing[0], True
        try:
            with Patches() as patches:
                patches.attribute(Module, "__getattr__", module_getattr)
                patches.attribute(Module, "__call__", module_call)
                for (_, name), table in _wrapped_fns_to_patch.items():
                    target = table.get(name, getattr(builtins, name, None))
                    if target is not None and not getattr(target, "_fx_wrapped", False):
                        patches.item(table, name, _recording(target))
                for cls, name in _wrapped_methods_to_patch:
                    patches.attribute(cls, name, _recording_method(cls, name))
                self._wrap_globals(patches, function, root)
                for module in self._autowrap_search:
                    self._wrap_table(patches, vars(module))
                result = called(*args)
            returned = getattr(inspect.unwrap(called), "__annotations__", {}).get("return")
            self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=returned)
        finally:
            _tracing[0] = was
            _restore_short_ways(Module)
        self.submodule_paths = None
        return self.graph

    def _wrap_globals(self, patches, function, owner):
        table = getattr(inspect.unwrap(function), "__globals__", None)
        if table is None:
            return
        self._wrap_table(patches, table)
        if not isinstance(owner, GraphModule):
            return
        # The code of a graph has its own table of the functions that were wrapped where they are defined.
        found = [inspect.unwrap(there[name]) for (_, name), there in _wrapped_fns_to_patch.items() if name in there]
        for name, value in list(table.items()):
            if any(value is function for function in found):
                patches.item(table, name, _recording(value))

    def _wrap_table(self, patches, table):
        for name, value in list(table.items()):
            if (
                not name.startswith("_")
                and callable(value)
                and id(value) in self._autowrap
                and not getattr(value, "_fx_wrapped", False)
            ):
                patches.item(table, name, _recording(value))

    def __deepcopy__(self, memo):
        made = object.__new__(type(self))
        made.__dict__.update(
            {
                k: copy.copy(v) if k in ("root",) else copy.deepcopy(v, memo)
                for k, v in self.__dict__.items()
                if k != "_autowrap_search"
            }
        )
        made._autowrap_search = list(self._autowrap_search)
        return made


def symbolic_trace(root, concrete_args=None):
    """The module or function as a GraphModule."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
