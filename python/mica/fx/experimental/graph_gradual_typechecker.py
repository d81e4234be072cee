"""Gradual types of graphs: what the sizes of a graph's values are, as far as its annotations and its operations say.

`GraphTypeChecker` gives every node a type, or says which node cannot have one. `Refine` then names the sizes that stay
unknown and collects which of them are equal; `unify_refinements` solves that.
"""

import itertools

import mica
from mica.fx.experimental._gradual_refinements import (
    _REFINEMENT_RULES,
    _RULES,
    all_eq,
    conv_refinement_rule,
    conv_rule,
    element_wise_eq,
    first_two_eq,
    flatten_refinement_rule,
    linear_refinement_rule,
    register_algebraic_expressions_inference_rule,
    register_refinement_rule,
)
from mica.fx.experimental._gradual_rules import (
    _INFERENCE_RULES,
    adaptiveavgpool2d_check,
    adaptiveavgpool2d_inference_rule,
    add_inference_rule,
    bn2d_inference_rule,
    conv2d_inference_rule,
    flatten_check,
    flatten_inference_rule,
    get_attr_inference_rule,
    linear_check,
    linear_inference_rule,
    maxpool2d_check,
    maxpool2d_inference_rule,
    register_inference_rule,
    relu_inference_rule,
    reshape_inference_rule,
    transpose_inference_rule,
)
from mica.fx.experimental._gradual_sizes import (
    broadcast_types,
    calculate_out_dimension,
    expand_to_tensor_dim,
    get_greatest_upper_bound,
)
from mica.fx.experimental.unification import Var
from mica.fx.node import map_arg
from mica.fx.tensor_type import Dyn, TensorType

__all__ = [
    "GraphTypeChecker", "Refine", "adaptiveavgpool2d_check", "adaptiveavgpool2d_inference_rule", "add_inference_rule",
    "all_eq", "bn2d_inference_rule", "broadcast_types", "calculate_out_dimension", "conv2d_inference_rule",
    "conv_refinement_rule", "conv_rule", "element_wise_eq", "expand_to_tensor_dim", "first_two_eq", "flatten_check",
    "flatten_inference_rule", "flatten_refinement_rule", "get_attr_inference_rule", "get_greatest_upper_bound",
    "get_parameter", "linear_check", "linear_inference_rule", "linear_refinement_rule", "maxpool2d_check",
    "maxpool2d_inference_rule", "register_algebraic_expressions_inference_rule", "register_inference_rule",
    "register_refinement_rule", "relu_inference_rule", "reshape_inference_rule", "transpose_inference_rule",
]  # fmt: skip


class GraphTypeChecker:
    """Checks the types of a graph's nodes, and writes what follows from them into the nodes."""

    def __init__(self, env, traced):
        self.env = env
        self.traced = traced

    def type_check(self):
        """Give each node its type, and return True. A node whose operation refuses the types that it is given is a TypeError."""
        for node in self.traced.graph.nodes:
            self.type_check_node(node)
        return True

    def type_check_node(self, n):
        """The type of one node, whose arguments have theirs."""
        if n.type is None:
            n.type = Dyn
        if n.op == "get_attr":
            value = get_parameter(self.traced, n.target)
            if isinstance(value, mica.Tensor):
                n.type = TensorType(value.shape)
        elif n.op == "call_function":
            if n.target not in _INFERENCE_RULES:
                raise RuntimeError(f"No inference rule registered for target {n.target}!")
            own = (self.traced,) if n.target is getattr else ()
            return _INFERENCE_RULES[n.target](n, *own)
        elif n.op == "call_module":
            module = self.traced.get_submodule(n.target)
            if type(module) not in _INFERENCE_RULES:
                raise RuntimeError(f"No inference rule registered for class {type(module)}!")
            return _INFERENCE_RULES[type(module)](n, module)
        elif n.op == "output":
            n.type = _types_of(n)
        elif n.op != "placeholder":
            raise NotImplementedError(f"Method {n.op} not yet implemented")
        return n.type


class Refine:
    """Names the unknown sizes of a graph whose types were checked, and collects in `constraints` which sizes are equal."""

    def __init__(self, traced):
        self.constraints = []
        self.traced = traced
        self.symbol_iter = itertools.count()
        self._taken = {str(size) for node in traced.graph.nodes for size in _sizes_in(node.type)}

    def refine(self):
        """Name the unknown sizes of every node, and collect what its operation says of them."""
        for node in self.traced.graph.nodes:
            self.refine_node(node)
        return True

    def symbolic_relations(self):
        """Write sizes as expressions of sympy, where an operation says how they are computed from others."""
        for node in self.traced.graph.nodes:
            self.infer_symbolic_relations(node)
        return True

    def refine_node(self, n):
        n.type = self.replace_dyn_with_fresh_var(Dyn if n.type is None else n.type)
        rule = self._rule_of(n, _REFINEMENT_RULES)
        if rule is not None:
            self.constraints += rule[0](n)
        return self._follow_output(n)

    def infer_symbolic_relations(self, n):
        n.type = self.convert_to_sympy_symbols(n.type)
        rule = self._rule_of(n, _RULES)
        return self._follow_output(n) if rule is None else rule[0](n, *rule[1:])

    def replace_dyn_with_fresh_var(self, typ):
        """A type whose unknown parts are new variables."""
        return _mapped(typ, lambda part: self._fresh() if part == Dyn else part)

    def convert_to_sympy_symbols(self, typ):
        """A type whose variables are symbols of sympy, of the same names."""
        return _mapped(typ, lambda part: _symbol(part) if isinstance(part, Var) else part)

    def _fresh(self):
        return next(name for name in map(Var, self.symbol_iter) if str(name) not in self._taken)

    def _rule_of(self, n, rules):
        """The rule of a node, with the module that it calls; None where there is none."""
        if n.op == "call_function" and n.target in rules:
            return (rules[n.target],)
        if n.op == "call_module":
            module = self.traced.get_submodule(n.target)
            return (rules[type(module)], module) if type(module) in rules else None
        return None

    def _follow_output(self, n):
        if n.op == "output":
            n.type = _types_of(n)
            return n.type
        return None


def get_parameter(traced, target):
    """The attribute of a module by its path, such as "layer.weight"."""
    path, _, name = target.rpartition(".")
    module = traced.get_submodule(path)
    if not hasattr(module, name):
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    return getattr(module, name)


def _types_of(output):
    """The type of what a graph returns, in its structure."""
    return map_arg(output.args[0], lambda node: node.type)


def _mapped(typ, change):
    """A type whose parts are changed: the type itself where it has none."""
    if isinstance(typ, TensorType):
        return TensorType(tuple(_mapped(part, change) for part in typ.dims))
    return type(typ)(_mapped(part, change) for part in typ) if isinstance(typ, (list, tuple)) else change(typ)


def _sizes_in(typ):
    """The parts of a type that are no structures."""
    if isinstance(typ, (TensorType, list, tuple)):
        for part in typ.dims if isinstance(typ, TensorType) else typ:
            yield from _sizes_in(part)
    elif typ is not None:
        yield typ


def _symbol(variable):
    try:
        import sympy
    except ImportError as error:
        raise ImportError("sizes as expressions are sympy's: install the package sympy for them") from error
    return sympy.symbols(str(variable))
