"""Graphs whose calls are written in one way."""

import operator
import typing

import mica
from mica.fx import Proxy, Transformer
from mica.fx.node import Node, map_aggregate
from mica.fx.operator_schemas import create_type_hint, normalize_function, normalize_module

__all__ = ["NormalizeArgs", "NormalizeOperators"]


def _type_of(argument):
    """The type of an argument of a call; None for a node of which `ShapeProp` has not noted it."""
    found = map_aggregate(argument, lambda a: a.meta.get("type") if isinstance(a, Node) else type(a))
    return create_type_hint(found) if isinstance(found, (list, tuple)) and None not in found else found


class NormalizeArgs(Transformer):
    """Writes the arguments of functions and layers by their names, in the order of the parameters, with the defaults.

    With `normalize_to_only_use_kwargs=False` positional arguments stay positional. A call that several overloads of a
    function could take stays as it is, unless `ShapeProp` has noted the types of the arguments. Methods stay as they
    are.
    """

    def __init__(self, module, normalize_to_only_use_kwargs=True):
        super().__init__(module)
        self.node_map = {}
        self.normalize_to_only_use_kwargs = normalize_to_only_use_kwargs

    def run_node(self, n):
        """Copy a node into the new graph, with its metadata."""
        if n.op == "call_function":
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            arg_types = tuple(_type_of(each) for each in n.args)
            kwarg_types = {name: _type_of(each) for name, each in n.kwargs.items()}
            made = self.call_function(n.target, args, kwargs, arg_types, kwarg_types)
        else:
            made = super().run_node(n)
        if isinstance(made, Proxy) and n.op != "output":
            made.node.meta, made.node.type = dict(n.meta), n.type
            self.node_map[made] = n
        return made

    def transform(self):
        """The module with the written calls."""
        made = super().transform()
        output = made.graph.output_node()
        output.meta, output.type = dict(self.module.graph.output_node().meta), self.module.graph.output_node().type
        made.recompile()
        return made

    def call_function(self, target, args, kwargs, arg_types=None, kwarg_types=None):
        """Write the call of a function."""
        found = normalize_function(target, args, kwargs, arg_types, kwarg_types, self.normalize_to_only_use_kwargs)
        args, kwargs = found or (args, kwargs)
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_module(self, target, args, kwargs):
        """Write the call of a layer."""
        found = normalize_module(self.module, target, args, kwargs, self.normalize_to_only_use_kwargs)
        return super().call_module(target, *(found or (args, kwargs)))


class NormalizeOperators(Transformer):
    """Writes `torch.add(x, y)` and its like as `x + y`: a call of the function of Python's module operator.

    A call with further arguments, such as `alpha=2`, stays as it is.
    """

    binary_magic_method_remap: typing.ClassVar = {
        mica.add: operator.add,
        mica.mul: operator.mul,
        mica.sub: operator.sub,
        mica.div: operator.truediv,
        mica.floor_divide: operator.floordiv,
        mica.remainder: operator.mod,
        mica.eq: operator.eq,
        mica.ne: operator.ne,
        mica.lt: operator.lt,
        mica.le: operator.le,
        mica.gt: operator.gt,
        mica.ge: operator.ge,
    }

    def call_function(self, target, args, kwargs):
        """Write the call of a function."""
        further = {name: value for name, value in kwargs.items() if (name, value) != ("alpha", 1)}
        if len(args) == 2 and not further and target in self.binary_magic_method_remap:
            return super().call_function(self.binary_magic_method_remap[target], args, {})
        return super().call_function(target, args, kwargs)
