"""What stands among the arguments of a traced graph: names of inputs, nests of them, and open sizes."""

import inspect
import math
import operator
import sys

import mica
from mica import _C
from mica.fx._codegen import CodeGen
from mica.fx.experimental._expressions import WHOLE, Symbol, is_fractional, symbol
from mica.fx.experimental._truths import Joined
from mica.fx.node import Node
from mica.utils._pytree import tree_flatten

__all__ = ["PytreeInputs", "SizeNodes", "alias_key", "placeholder_names"]


def alias_key(tensor):
    """What two objects of one tensor have in common: memory, place in it, sizes and strides. None without memory."""
    if tensor.layout is not mica.strided:
        return None
    with _C.DisableTorchFunctionSubclass():
        base = _C.TensorBase
        return (base.untyped_storage(tensor)._cdata, base.storage_offset(tensor), tuple(base.size(tensor)),
                tuple(base.stride(tensor)), tensor.dtype)  # fmt: skip


def placeholder_names(function, args):
    """x_1 for the argument x; arg0_1 and so on where arguments are nested, or there are any number of them."""
    count = len(tree_flatten(args)[0])
    numbered = [f"arg{i}_1" for i in range(count)]
    if any(len(tree_flatten(arg)[0]) != 1 or isinstance(arg, (list, tuple, dict)) for arg in args):
        return numbered
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return numbered
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return numbered
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [f"{name}_1" for name in names[:count]] + numbered[len(names) :]


class PytreeInputs(CodeGen):
    """Code of a function whose arguments are nested: they are taken apart first."""

    def __init__(self, parameters, in_spec):
        super().__init__()
        self.parameters, self.in_spec = parameters, in_spec

    def gen_fn_def(self, free_vars, maybe_return_annotation="", *, expanded_def=False):
        names = [name for name in free_vars if name != "self"]
        given = ", ".join(self.parameters)
        unpacked = (
            f"\n    {', '.join(names)}, = fx_pytree.tree_flatten_spec(({given},), self._in_spec)" if names else ""
        )
        return f"def forward(self, {given}){maybe_return_annotation}:{unpacked}"

    def process_inputs(self, *args):
        return tree_flatten(tuple(args))[0]

    def additional_globals(self):
        return [("fx_pytree", _FlattenBySpec)]


class _FlattenBySpec:
    """What the code calls: the leaves of arguments that are nested as a spec says."""

    @staticmethod
    def tree_flatten_spec(args, spec):
        leaves, given = tree_flatten(tuple(args))
        if given != spec:
            raise ValueError(f"the graph was made for arguments that are nested as {spec}, but these are as {given}")
        return leaves


SIGNS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def has_data(truth):
    """Whether only data decide a truth."""
    return any(name.startswith(("u", "z")) for name in truth.free_symbols)


_FUNCTIONS = {"FloorDiv": operator.floordiv, "Mod": operator.mod, "TrueDiv": operator.truediv, "FloatPow": operator.pow}
_ROUNDINGS = {"CeilToInt": math.ceil, "RoundToInt": round}


_ROOTS = (-0.5, 0.5, -0.25, 0.25)


class SizeNodes:
    """Nodes that compute open sizes, made where they are first used."""

    def __init__(self, graph, env):
        self._graph, self._env = graph, env
        self._inputs, self._made = {}, {}  # symbol -> (placeholder, axis or None); expression -> node
        self._truths = {}  # truth that data hold -> node
        self._reals = {}  # node of a whole number -> node of the same floating number
        self._multiples = {}  # symbol -> (placeholder, axis, factor of the symbol)
        self.lifted = (
            None  # of a graph within another one: [(number, its placeholder)] of those that belong to that one
        )

    @property
    def large(self):
        """Numbers above it may stand for open sizes."""
        return sys.maxsize if self._env is None else self._env.worlds.large

    def add_input(self, node, value):
        """A placeholder, whose sizes others may be made of."""
        sizes = (
            (value.node._expr,) if isinstance(value, mica.SymInt) else getattr(value, "__dict__", {}).get("_sizes", ())
        )
        for axis, size in enumerate(sizes):
            if isinstance(size, int):
                continue
            if size.is_symbol:
                ((name,),) = size.terms
                self._bind(name, node, None if isinstance(value, mica.SymInt) else axis)
            elif len(size.terms) == 1:  # a size of 2 * k says what k is
                ((atoms, factor),) = size.terms.items()
                if len(atoms) == 1 and isinstance(atoms[0], Symbol):
                    self._multiples.setdefault(
                        atoms[0], (node, None if isinstance(value, mica.SymInt) else axis, factor)
                    )

    def _bind(self, name, node, axis):
        """A symbol is known by a node. What the trace has relied on about it is asserted there (_facts_of_data.py)."""
        if name not in self._inputs:
            self._inputs[name] = (node, axis)
            if name in self._env.to_assert and node.op != "placeholder":
                for relation in self._env.to_assert[name]:
                    self.assertion(relation)

    def forget(self, nodes):
        """What is known by nodes that the graph has no more is made anew."""
        gone = set(nodes)
        self._inputs = {name: pair for name, pair in self._inputs.items() if pair[0] not in gone}
        self._multiples = {name: found for name, found in self._multiples.items() if found[0] not in gone}
        self._made = {expr: node for expr, node in self._made.items() if node not in gone}
        self._truths = {truth: node for truth, node in self._truths.items() if node not in gone}
        self._reals = {whole: node for whole, node in self._reals.items() if not gone.intersection((whole, node))}

    def has(self, symbol):
        return symbol in self._inputs or symbol in self._multiples

    def add_number(self, node, value):
        """A node that computes a number which only data decide."""
        expr = value.node._expr
        (name,) = expr.free_symbols
        node.meta.setdefault("val", value)
        if isinstance(value, mica.SymBool):
            self._truths[expr] = node
        self._bind(name, node, None)

    def symbol_of(self, node):
        """The symbol that a node is known by; None of others. It may be known to be an expression, whose nodes come later."""
        return next(
            (symbol(name) for name, (known, axis) in self._inputs.items() if known is node and axis is None), None
        )

    def assertion(self, relation):
        """Nodes that assert what a program states of data."""
        node = self._truth(relation)
        words = f"Runtime assertion failed for expression {relation} on node '{node.name}'"
        target = mica.ops.aten._assert_scalar.default
        self._graph.create_node("call_function", target, (node, words), {}, "_assert_scalar_default")

    def truth(self, value):
        """The node of a truth that is left open."""
        return self._truth(value.node._expr)

    def _truth(self, relation):
        if relation in self._truths:
            return self._truths[relation]
        if isinstance(relation, Joined):
            first, *others = map(self._truth, relation.parts)
            for each in others:
                first = self._call(operator.and_ if relation.word == "and" else operator.or_, (first, each))
            return first
        return self._call(SIGNS[relation.sign], (self.node(relation.left), self.node(relation.right)))

    def argument(self, value, near=True):
        """A value as an argument: an open size as its node. A factor or a bound is no open size, even if it is close to one."""
        if self._env is None:
            return value
        if isinstance(value, (mica.SymInt, mica.SymFloat)):
            node = self.node(self._env.replace(value.node._expr))
            return self._real(node) if isinstance(value, mica.SymFloat) else node
        if isinstance(value, mica.SymBool):
            return self._truth(value.node._expr) if has_data(value.node._expr) else bool(value)
        if type(value) is float:
            return self._float(value)
        if type(value) is int:
            found = self._env.worlds.known(value, near)
            return found if isinstance(found, int) else self.node(self._env.replace(found))
        return value

    def _real(self, node):
        """A floating number, whose expression may be that of a whole one: 1.0 * n."""
        if not isinstance(node, Node):
            return float(node)
        if not isinstance(node.meta.get("val"), mica.SymInt):
            return node
        if node not in self._reals:
            self._reals[node] = self._call(mica.sym_float, (node,))
        return self._reals[node]

    def _float(self, value):
        """A number that only data decide, or one that an operation of the engine's has made of a size: n, 2 / (n - 1)."""
        if value in self._env.stand_ins:
            return self._real(self.node(self._env.stand_ins[value].node.expr))
        if self.large < abs(value) < 2**53 and value.is_integer():
            found = self._env.worlds.known(int(value))
            if not isinstance(found, int):
                return self._real(self.node(self._env.replace(found)))
        for number, expr in self._env.worlds.numbers():
            for power in _ROOTS:  # what scales products of rows of open length: n ** -0.5
                if abs(value - number**power) < 1e-13 * number**power:
                    return self._call(operator.pow, (self.node(self._env.replace(expr)), power))
        for number, expr in self._env.worlds.numbers() if 0 < abs(value) < 0.02 else ():
            for delta in (0, -1, 1):
                share = value * (number + delta)
                if 0 < abs(round(share)) <= 64 and abs(share - round(share)) < 1e-9 * abs(share):
                    node = self.node(self._env.replace(expr + delta))
                    return self._call(operator.truediv, (round(share), node))
        return value

    def node(self, expr):
        """The node of an expression; the number if it is one."""
        if expr.is_number:
            return expr.number
        if expr in self._made:
            return self._made[expr]
        if len(expr.terms) == 1:
            ((atoms, factor),) = expr.terms.items()
            if len(atoms) == 1 and self._multiples.get(atoms[0], (None,))[-1] == factor:
                self._atom(atoms[0])  # the size itself is a node then
                return self._made[expr]
        total = None
        for atoms, factor in sorted(expr.terms.items(), key=lambda item: (not item[0], str(item[0]))):
            term = None
            for atom in atoms:
                each = self._atom(atom)
                term = each if term is None else self._call(operator.mul, (term, each))
            if term is None:
                term = factor
            elif factor != 1:
                term = self._call(operator.mul, (factor, term))
            total = term if total is None else self._call(operator.add, (total, term))
        self._note(total, expr)
        return total

    def _note(self, node, expr):
        self._made[expr] = node
        if is_fractional(expr) or any(name.startswith("z") for name in expr.free_symbols):
            return  # not a whole number: the node knows its value
        node.meta["val"] = self._env.create_symintnode(expr)

    def _atom(self, atom):
        from mica.fx.experimental._expressions import Expression

        expr = Expression({(atom,): 1})
        if expr in self._made:
            return self._made[expr]
        if isinstance(atom, Symbol):
            if atom not in self._inputs and atom in self._env.parts:
                whole, factor = self._env.parts[atom]
                node = self._call(operator.floordiv, (self.node(symbol(whole)), factor))
                self._note(node, expr)
                return node
            if atom not in self._inputs and atom in self._multiples:
                node, axis, factor = self._multiples[atom]
                size = node
                if axis is not None:
                    size = self._call(mica.ops.aten.sym_size.int, (node, axis), "sym_size_int")
                self._note(size, Expression({(atom,): factor}))
                node = self._call(operator.floordiv, (size, factor))
                self._note(node, expr)
                return node
            if atom not in self._inputs:
                self._lift(atom)
            node, axis = self._inputs[atom]
            if axis is not None:
                node = self._call(mica.ops.aten.sym_size.int, (node, axis), "sym_size_int")
        elif atom.name in _FUNCTIONS:
            node = self._call(_FUNCTIONS[atom.name], tuple(map(self.node, atom.args)))
        elif atom.name in WHOLE:
            node = self._call(_ROUNDINGS.get(atom.name, mica.sym_int), tuple(map(self.node, atom.args)))
        else:
            node = self._call(mica.sym_max if atom.name == "Max" else mica.sym_min, tuple(map(self.node, atom.args)))
        self._note(node, expr)
        return node

    def _lift(self, name):
        """A number that the graph around has becomes a placeholder of this one."""
        if self.lifted is None or name.startswith("z"):
            raise NotImplementedError(f"the graph has no input that the size {name} could be read from")
        node = self._graph.create_node("placeholder", name, (), {}, name)
        node.meta["val"] = self._env.create_symintnode(symbol(name))
        self.lifted.append((node.meta["val"], node))
        self._inputs[name] = (node, None)

    def _call(self, function, args, name=None):
        node = self._graph.create_node("call_function", function, args, {}, name)
        node.meta["is_size"] = True
        if name is None:  # arithmetic on sizes that are known by their nodes
            values = [each.meta["val"] if isinstance(each, Node) else each for each in args]
            node.meta["val"] = function(*values)
        return node
