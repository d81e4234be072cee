"""What stands for a value while a program is traced: operations on it become nodes."""

import collections
import dataclasses
import dis
import enum
import inspect
import operator
import os
import sys
import traceback

import mica
from mica.fx.node import Node, base_types, map_aggregate
from mica.fx.traceback import hand_on

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "MetaProxy",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
]


class TraceError(ValueError):
    """Raised where a program asks for a value that tracing does not know."""


class Scope:
    """The module that is being traced."""

    def __init__(self, module_path, module_type):
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """Another module is being traced in a with block."""

    def __init__(self, scope, current_scope):
        self._scope, self._before = scope, (scope.module_path, scope.module_type)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self):
        return self._scope

    def __exit__(self, *exception):
        self._scope.module_path, self._scope.module_type = self._before


def _stack_of_program():
    """The lines of the program that is traced, without those of the tracer, as a traceback shows them."""
    here = os.path.dirname(__file__)
    frames = traceback.extract_stack()
    return "".join(traceback.format_list([each for each in frames if os.path.dirname(each.filename) != here]))


class TracerBase:
    """Makes nodes of operations on proxies."""

    graph = None
    record_stack_traces = trace_asserts = proxy_buffer_attributes = check_mutable_operations = False
    traced_func_name = "forward"
    scope = None

    def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
        if kind == "call_function" and self.check_mutable_operations:
            from mica.fx.operator_schemas import check_for_mutable_operation

            check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        given = hand_on(node)
        if self.scope is not None:
            if not given:
                node.meta["nn_module_stack"] = dict(getattr(self, "module_stack", {}))
            getattr(self, "node_name_to_scope", {})[node.name] = (self.scope.module_path, self.scope.module_type)
        return node

    def proxy(self, node):
        return Proxy(node, self)

    def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, proxy_factory_fn=None):
        args, kwargs = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, tuple(args), dict(kwargs), name, type_expr)
        if self.record_stack_traces and not node.stack_trace:
            node.stack_trace = _stack_of_program()
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    def create_arg(self, a):
        """A value as the argument of a node: proxies become nodes."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            items = [self.create_arg(each) for each in a]
            return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
        if isinstance(a, list):
            return [self.create_arg(each) for each in a]
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(each) for each in (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*(self.create_arg(each) for each in (a.start, a.stop, a.step)))
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            fields = {each.name: self.create_arg(getattr(a, each.name)) for each in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), fields)
        if (
            isinstance(a, (*base_types, mica.finfo, enum.Enum))
            or a is None
            or a is ...
            or hasattr(a, "_schema")
            or inspect.isclass(a)
            or callable(a)
        ):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, key):
        def refuse(value):
            if isinstance(value, (Node, Proxy)):
                raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}")
            return value

        return map_aggregate(key, refuse)

    def to_bool(self, obj):
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj):
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument. See the torch.fx docs on pytorch.org for a more detailed explanation of what "
            "types of control flow can be traced, and check out the Proxy docstring for help troubleshooting Proxy "
            "iteration errors"
        )

    def keys(self, obj):
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Appends nodes to a graph."""

    def __init__(self, graph):
        self.graph = graph
        self.scope, self.module_stack, self.node_name_to_scope = Scope("", None), collections.OrderedDict(), {}


def assert_fn(x):
    assert x


def _number_unpacked(frame):
    """How many values the instruction of a frame takes apart: a, b = proxy. None for other instructions."""
    instructions = list(dis.get_instructions(frame.f_code))
    at = next((i for i, each in enumerate(instructions) if each.offset == frame.f_lasti), None)
    if at is None:
        return None
    here = instructions[at]
    return here.argval if here.opname == "UNPACK_SEQUENCE" else None


def _is_asserted(frame):
    """Whether a frame asks for a truth in order to assert it: it jumps over the raising of an AssertionError."""
    instructions = list(dis.get_instructions(frame.f_code))
    at = next((i for i, each in enumerate(instructions) if each.offset == frame.f_lasti), None)
    if at is None:
        return False
    at += instructions[at].opname == "TO_BOOL"
    jump, following = instructions[at], instructions[at + 1 :]
    if not (jump.opname.startswith("POP_JUMP") and jump.opname.endswith("IF_TRUE")) or not following:
        return False
    skipped = [each for each in following if each.offset < jump.argval and each.opname not in ("CACHE", "NOT_TAKEN")]
    return (
        bool(skipped)
        and "ASSERTION" in f"{skipped[0].opname} {skipped[0].argval}".upper()
        and (skipped[-1].opname == "RAISE_VARARGS")
    )


class Proxy:
    """Stands for a value; what is done with it becomes nodes of the tracer's graph."""

    def __init__(self, node, tracer=None):
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self):
        return f"Proxy({self.node.name})"

    def __getattr__(self, k):
        if k.startswith("__") and k.endswith("__"):
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self):
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__.update(state)

    def __deepcopy__(self, memo):
        import copy

        made = object.__new__(type(self))
        for name, value in self.__dict__.items():
            try:
                made.__dict__[name] = copy.deepcopy(value, memo)
            except Exception:  # it cannot be copied deeply
                made.__dict__[name] = copy.copy(value)
        return made

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self):
        count = _number_unpacked(sys._getframe(1))
        if count is not None:
            return (self[i] for i in range(count))
        return self.tracer.iter(self)

    def __abs__(self):
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self):
        if self.tracer.trace_asserts and _is_asserted(sys._getframe(1)):
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self):
        return self.tracer.keys(self)

    def __len__(self):
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(cls, orig_method, types, args=None, kwargs=None):
        args, kwargs = args or (), kwargs or {}
        tracers = {}

        def find(value):
            if isinstance(value, Proxy):
                tracers[value.tracer] = None
            return value

        map_aggregate((tuple(args), dict(kwargs)), find)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers)} while trying to trace operations {orig_method}"
            )
        tracer = next(iter(tracers))
        if inspect.ismethoddescriptor(orig_method):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


class MetaProxy(Proxy):
    """A proxy that knows what its value is like: `node.meta["val"]`, a fake tensor of the mode `fake_mode`.

    Functions of such proxies run on their fake tensors too, and their results are such proxies. Methods and
    operators of Python (`p + 1`) give plain proxies.
    """

    def __init__(self, node, tracer=None, fake_mode=None):
        super().__init__(node, tracer)
        self.fake_mode = fake_mode

    def __repr__(self):
        return f"MetaProxy({self.node.name})"

    @classmethod
    def __torch_function__(cls, orig_method, types, args=None, kwargs=None):
        args, kwargs = args or (), kwargs or {}
        known = []

        def value(argument):
            if isinstance(argument, MetaProxy):
                known.append(argument)
            return argument.node.meta["val"] if isinstance(argument, Proxy) else argument

        fake_args, fake_kwargs = map_aggregate((tuple(args), dict(kwargs)), value)
        if not known:
            raise AssertionError("__torch_function__ of MetaProxy needs a MetaProxy among the arguments")
        made = super().__torch_function__(orig_method, types, args, kwargs)
        with known[0].fake_mode:
            made.node.meta["val"] = orig_method(*fake_args, **fake_kwargs)
        return MetaProxy(made.node, made.tracer, known[0].fake_mode)


class Attribute(Proxy):
    """An attribute of a proxy: a node only if its value is used; called, it is a call of a method."""

    def __init__(self, root, attr):
        self.root, self.attr, self.tracer, self._node = root, attr, root.tracer, None

    @property
    def node(self):
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter, whose shape is known."""

    def __init__(self, tracer, node, name, param):
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self):
        return f"ParameterProxy({self.name})"

    shape = property(lambda self: self.param.shape)
    ndim = property(lambda self: self.param.ndim)

    def size(self, *args):
        return self.param.size(*args)

    def dim(self):
        return self.param.dim()

    def numel(self):
        return self.param.numel()

    nelement = numel


def _record(name, function):
    def method(*args, **kwargs):
        tracer = args[0].tracer
        return tracer.create_proxy("call_function", function, args, kwargs)

    method.__name__ = name
    return method


_MAGIC = ("eq", "ne", "lt", "gt", "le", "ge", "pos", "neg", "invert", "add", "sub", "mul", "floordiv", "truediv",
          "mod", "lshift", "rshift", "pow", "matmul", "getitem")  # fmt: skip
_REFLECTED = (
    "add",
    "sub",
    "mul",
    "floordiv",
    "truediv",
    "mod",
    "lshift",
    "rshift",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
)
for _name in _MAGIC:
    setattr(Proxy, f"__{_name}__", _record(f"__{_name}__", getattr(operator, _name)))
for _name in ("and", "or", "xor"):
    setattr(
        Proxy, f"__{_name}__", _record(f"__{_name}__", getattr(operator, _name, None) or getattr(operator, f"{_name}_"))
    )
# There are no in-place methods: `x += y` is recorded as `x + y`, and a graph changes none of its inputs.


def _reflected(name, function):
    def method(self, other):
        return self.tracer.create_proxy("call_function", function, (other, self), {})

    method.__name__ = f"__r{name}__"
    return method


for _name in _REFLECTED:
    _function = getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)
    setattr(Proxy, f"__r{_name}__", _reflected(_name, _function))
Proxy.__hash__ = object.__hash__
