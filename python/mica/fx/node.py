"""A step of a graph."""

import builtins
import operator
import types
import typing

import mica
from mica.fx._annotations import type_name
from mica.fx.immutable_collections import immutable_dict, immutable_list
from mica.utils._drawing import DRAWING_OPERATORS

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

BaseArgumentTypes = typing.Union[str, int, float, bool, complex, mica.dtype, mica.Tensor, mica.device]  # noqa: UP007
Target = typing.Union[typing.Callable[..., typing.Any], str]  # noqa: UP007
Argument = typing.Any
base_types = (str, int, float, bool, complex, mica.dtype, mica.Tensor, mica.device, mica.memory_format, mica.layout)
_LEGAL = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")
# Functions that draw random numbers. Graphs hold them as the program calls them, and they are never removed.
_DRAWING_FUNCTIONS = frozenset(
    getattr(mica, name)
    for name in (
        "bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
        "randperm",
    )
)  # fmt: skip
# Operators that are called for their effect.
_DOING = frozenset(
    [
        "aten::_assert_async", "aten::_assert_scalar", "aten::_assert_tensor_metadata", "_c10d_functional::wait_tensor",
        "profiler::_record_function_enter", "profiler::_record_function_exit",
    ]
)  # fmt: skip
_side_effectful_functions = {mica._assert, mica._assert_async, mica._C._set_grad_enabled, builtins.print}


# By their names they would change an argument.
_PLAIN = (operator.or_, operator.and_, operator.not_, operator.is_)


def changes_by_name(function):
    """Whether a function changes an argument, by its name, which ends in an underscore."""
    name = getattr(function, "__name__", "")
    return name.endswith("_") and not name.endswith("__") and function not in _PLAIN


def has_side_effect(fn):
    """Keep calls of a function even if nobody uses their results."""
    _side_effectful_functions.add(fn)
    return fn


def map_aggregate(a, fn):
    """A nest of tuples, lists, dicts and slices with a function of each value in it."""
    if isinstance(a, tuple):
        items = [map_aggregate(each, fn) for each in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(each, fn) for each in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(value, fn) for key, value in a.items()})
    if isinstance(a, slice):
        return slice(*(map_aggregate(each, fn) for each in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a, fn):
    """A nest with a function of each node in it."""
    return map_aggregate(a, lambda value: fn(value) if isinstance(value, Node) else value)


def qualified_name(function):
    """The name of a function that code can call it by."""
    name = function.__name__
    if getattr(builtins, name, None) is function:
        return name
    module = getattr(function, "__module__", None) or "torch"
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return f"torch.Tensor.{name}"
    if module == "_operator":
        module = "operator"
    if module == "mica" or module.startswith("mica."):
        module = "torch" + module.removeprefix("mica")
    if module.startswith("torch._ops."):
        module = "torch.ops." + module.removeprefix("torch._ops.")
    if module == "torch._C" and not hasattr(mica, name) and hasattr(mica._C, name):
        return f"torch._C.{name}"
    if module in ("torch", "torch._C") or (hasattr(mica, name) and getattr(mica, name) is function):
        module = "torch"
    return f"{module}.{name}"


_get_qualified_name = qualified_name


def _format_arg(arg):
    if isinstance(arg, Node):
        return f"%{arg}"
    if isinstance(arg, tuple) and hasattr(arg, "_fields"):
        fields = (f"{name}={_format_arg(value)}" for name, value in zip(arg._fields, arg, strict=True))
        return f"{type(arg).__name__}({', '.join(fields)})"
    if isinstance(arg, tuple):
        inner = ", ".join(map(_format_arg, arg))
        return f"({inner},)" if len(arg) == 1 else f"({inner})"
    if isinstance(arg, list):
        return f"[{', '.join(map(_format_arg, arg))}]"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{key}: {_format_arg(value)}" for key, value in arg.items()) + "}"
    return str(arg)


def _tensor_kind(meta):
    """What is known of the tensor that a node gives, as format_node writes it; empty where nothing is."""
    import mica
    from mica.fx._readable import short_dtype

    value = meta.get("val", meta.get("tensor_meta", meta.get("example_value")))
    if not isinstance(value, mica.Tensor) or value.layout in (mica.sparse_csc, mica.sparse_csr):
        return ""
    sizes, strides = (", ".join(map(str, each)) for each in (value.shape, value.stride()))
    return f'Tensor "{short_dtype(value.dtype)}[{sizes}][{strides}]{value.device}"'


class Node:
    """One step of a graph: an input, an attribute, a call or the output. `meta` is the user's."""

    def __init__(self, graph, name, op, target, args, kwargs, return_type=None):
        if op not in _LEGAL:
            raise AssertionError(f"op '{op}' not a valid op")
        if op == "call_function":
            if not callable(target):
                raise ValueError(
                    f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a Callable is expected"
                )
        elif not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a str is expected"
            )
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self._prev = self._next = self
        self._erased = False
        self._input_nodes, self.users = {}, {}
        self._args, self._kwargs = (), {}
        self.meta = {}
        self._repr_fn = None
        self._update(map_aggregate(tuple(args), lambda x: x), map_aggregate(dict(kwargs), lambda x: x))

    # ---- arguments

    def _update(self, args, kwargs):
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._args, self._kwargs, self._input_nodes = args, kwargs, {}

        def note(node):
            self._input_nodes.setdefault(node)
            node.users.setdefault(self)
            return node

        map_arg((args, kwargs), note)

    @property
    def args(self):
        return self._args

    @args.setter
    def args(self, a):
        self._update(map_aggregate(tuple(a), lambda x: x), self._kwargs)

    @property
    def kwargs(self):
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k):
        self._update(self._args, map_aggregate(dict(k), lambda x: x))

    @property
    def all_input_nodes(self):
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    def update_arg(self, idx, arg):
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx, arg):
        args = list(self._args)
        args.insert(idx, arg)
        self.args = tuple(args)

    def update_kwarg(self, key, arg):
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input, new_input):
        """Use another node wherever one is an argument."""
        swap = lambda node: new_input if node is old_input else node  # noqa: E731
        self._update(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(self, replace_with, delete_user_cb=lambda user: True, *, propagate_meta=False):
        """Let the users of this node use another; returns them."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        changed = [user for user in list(self.users) if delete_user_cb is None or delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # ---- place in the graph

    @property
    def next(self):
        return self._next

    @property
    def prev(self):
        return self._prev

    def _remove_from_list(self):
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x):
        """Put a node before this one."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x):
        """Put a node after this one."""
        self._next.prepend(x)

    def __lt__(self, other):
        return self._position() < other._position()

    def _position(self):
        return next(i for i, node in enumerate(self.graph.nodes) if node is self)

    # ---- the rest

    @property
    def stack_trace(self):
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace):
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random=True):
        """Whether the node must stay even if no other node uses it."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "__name__", "")
            # An operator's name stands for its default overload.
            overload = getattr(self.target, "default", self.target)
            schema = getattr(overload, "_schema", None)
            if self.target in _DRAWING_FUNCTIONS:
                return True
            if schema is not None and (schema.is_mutable or schema.name in _DOING):
                return True
            if impure_random and schema is not None and schema.name.removeprefix("aten::") in DRAWING_OPERATORS:
                return True
            return (
                self.target in _side_effectful_functions
                or changes_by_name(self.target)
                or name in ("setitem", "_enter_autocast", "_exit_autocast")
            )
        if self.op == "call_method":
            return self.target.endswith("_") and not self.target.endswith("__")
        if self.op == "call_module" and self.graph.owning_module is not None:
            module = self.graph.owning_module.get_submodule(self.target)
            return getattr(module, "_is_impure", False)
        return False

    @staticmethod
    def _pretty_print_target(target):
        if isinstance(target, str):
            return target
        if hasattr(target, "__module__") and hasattr(target, "__name__"):
            return f"builtins.{target.__name__}" if target.__module__ == "builtins" else qualified_name(target)
        return str(target)

    def format_node(self, placeholder_names=None, maybe_return_typename=None, *, include_tensor_metadata=False):
        """The node as a line of text; with dtype, sizes, strides and device of its tensor, if asked for and known."""
        kind = "" if self.type is None else f"{type_name(self.type)} "
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(self.target)
            default = f"(default={self.args[0]})" if self.args else ""
            return f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}[target={self.target}]"
        if self.op == "output":
            if self.type is not None and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_name(self.type)}"
            return f"return {self.args[0]}"
        if include_tensor_metadata:
            kind = _tensor_kind(self.meta) or kind
        return (
            f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}[target={self._pretty_print_target(self.target)}]"
            f"(args = {_format_arg(self.args)}, kwargs = {_format_arg(self.kwargs)})"
        )

    def normalized_arguments(self, root, arg_types=None, kwarg_types=None, normalize_to_only_use_kwargs=False):
        """The arguments by the parameters of what the node calls, with defaults; None where that cannot be told."""
        from mica.fx.operator_schemas import normalize_function, normalize_module

        if self.op == "call_function":
            return normalize_function(
                self.target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs
            )
        if self.op == "call_module":
            return normalize_module(root, self.target, self.args, self.kwargs, normalize_to_only_use_kwargs)
        return None

    def _rename(self, candidate):
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)
            self.graph._graph_namespace._rename_object(self, self.name)

    def __repr__(self):
        return self._repr_fn(self) if self._repr_fn else self.name
