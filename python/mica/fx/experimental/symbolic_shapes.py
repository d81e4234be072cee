"""Open sizes: which there are, what is known of them, and what a graph has come to rely on (guards)."""

import logging

import mica
from mica.fx.experimental import _facts_of_data
from mica.fx.experimental._expressions import Expression, Symbol, is_fractional, make, symbol
from mica.fx.experimental._size_contexts import (
    Constraint,
    ConstraintViolationError,
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeGuard,
    StatefulSymbolicContext,
    StatelessSymbolicContext,
    SymbolicContext,
    unanswerable,
)
from mica.fx.experimental._size_questions import (
    canonicalize_bool_expr,
    free_symbols,
    free_unbacked_symbols,
    guard_bool,
    guard_float,
    guard_int,
    guard_or_false,
    guard_or_true,
    guard_scalar,
    guard_size_oblivious,
    has_free_symbols,
    has_free_unbacked_symbols,
    has_static_value,
    hint_int,
    is_accessor_node,
    is_concrete_bool,
    is_concrete_float,
    is_concrete_int,
    is_nested_int,
    is_symbolic,
    parallel_and,
    parallel_or,
    size_hint,
    statically_known_false,
    statically_known_true,
    sym_and,
    sym_eq,
    sym_or,
)
from mica.fx.experimental._size_symbols import size_of_input
from mica.fx.experimental._truths import TURNED, Joined, Relation, ValueRange, solve

__all__ = [
    "Constraint", "ConstraintViolationError", "DimDynamic", "GuardOnDataDependentSymNode", "ShapeEnv", "ShapeGuard",
    "StatefulSymbolicContext", "StatelessSymbolicContext", "SymbolicContext", "canonicalize_bool_expr", "free_symbols",
    "free_unbacked_symbols", "guard_bool", "guard_float", "guard_int", "guard_or_false", "guard_or_true",
    "guard_scalar", "guard_size_oblivious", "has_free_symbols", "has_free_unbacked_symbols", "has_static_value",
    "hint_int", "is_accessor_node", "is_concrete_bool", "is_concrete_float", "is_concrete_int", "is_nested_int",
    "is_symbolic", "parallel_and", "parallel_or", "size_hint", "statically_known_false", "statically_known_true", "sym_and", "sym_eq",
    "sym_or",
]  # fmt: skip
log = logging.getLogger("torch.fx.experimental.symbolic_shapes")


class ShapeEnv:
    """The open sizes of a trace, what is known of them, and the guards that it has come to rely on."""

    def __init__(self, *, duck_shape=True, specialize_zero_one=True, assume_static_by_default=False,
                 allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True, **options):  # fmt: skip
        from mica.fx.experimental._worlds import Worlds

        self.duck_shape = True if duck_shape is None else duck_shape
        self.specialize_zero_one, self.assume_static_by_default = specialize_zero_one, assume_static_by_default
        self.guards, self.replacements, self.var_to_val, self._ranges = [], {}, {}, {}
        self.var_to_sources, self.val_to_var, self.deferred_runtime_asserts = {}, {}, {}
        self.frozen, self.worlds, self._unbacked, self.avoid = False, Worlds(), {}, set()
        self.stand_ins = {}  # numbers of the engine's -> those that only data decide
        self.expected = []  # symbols for the next values of data, when a graph is run again
        # Objects that record numbers of data that a program asks for, and what it states about them.
        self.recorders = []
        # Sizes that an earlier trace of the same inputs has found not to be open: a number, or the key of an equal
        # size.
        self.presets, self._by_key, self._keys = {}, {}, {}
        # Makes what a program gets for a SymInt among the sizes of a tensor, if that is not the SymInt itself.
        self.shown = None
        self.refuses_data = False  # sizes that only data decide are an error
        # Whether a preset may be (key of another size, distance from it), an expression of keys, or a Multiple; whether it
        # may be a Multiple; of a size that is a multiple, how many times the symbol it is.
        self.takes_relations, self.takes_multiples, self.scales = False, False, {}
        self.defers_guards = False  # relations between several sizes are asserted by the graph
        # What is known of symbols of data before they are there (_facts_of_data.py); None where no trace begins anew.
        self.facts = None
        self.differences = {}  # a number less an open size -> what it is as a size (open_differences.py)
        self.size_like = set()  # symbols of data that sizes of tensors are made of
        self.parts, self.to_assert = (
            {},
            {},
        )  # part of a size -> (the size, how many parts); symbol -> fact as a relation

    backed_var_to_val = property(lambda self: self.var_to_val)

    @property
    def var_to_range(self):
        return {name: ValueRange(*ends) for name, ends in self._ranges.items()}

    # ---- symbols

    def create_symbol(self, val, source=None, dynamic_dim=DimDynamic.DUCK, constraint_dim=None, positive=True,
                      do_not_specialize_zero_one=False, symbolic_context=None, *, least=None, greatest=None, name=None):  # fmt: skip
        """The expression of a size: a number if it is static, a new symbol, or that of another size of the same value."""
        if dynamic_dim is DimDynamic.DUCK and not self.duck_shape:
            dynamic_dim = DimDynamic.DYNAMIC
        is_small = val in (0, 1) and self.specialize_zero_one and not do_not_specialize_zero_one
        return size_of_input(self, val, source, dynamic_dim, is_small, least, greatest, name)

    def preset_key(self, name):
        """What a symbol is known by in another environment for the same inputs."""
        return self._keys[name]

    def symbol_of(self, key):
        """The symbol that is known by a key."""
        return self._by_key[key]

    def fix(self, name, value):
        """Let a size be a number, or another size, from now on: in fake tensors that are made after this."""
        is_number = not isinstance(value, Symbol)
        self.presets[self._keys[name]] = value if is_number else self._keys[value]
        self.replacements[name] = make(value) if is_number else symbol(value)
        if is_number:
            self._ranges[name] = (value, value)
        self.worlds.fix(name, self.replacements[name])

    def create_symintnode(self, sym, *, hint=None, source=None):
        """An expression as a SymInt; a number as it is."""
        expr = mica._subclasses.open_differences.seen(self, self.replace(make(sym)))
        return expr.number if expr.is_number else mica.SymInt(mica._functions.symbolic.SymNode(expr, self, int))

    def shown_number(self, number):
        """A number of the first world as the size that it stands for; another one as it is."""
        known = number if isinstance(number, bool) else self.worlds.known(number, near=False)
        return known if isinstance(known, int) else self.create_symintnode(known)

    def create_unbacked_symint(self, source=None, *, least=None, greatest=None):
        """A whole number that only data decide."""
        name = self._data_symbol("u")
        if name not in self._ranges:
            self._ranges[name] = (least, greatest)
            if name in (self.facts or ()):
                _facts_of_data.apply(self, name, self.facts[name])
            else:
                self.worlds.add_later(name, self.avoid)
        # The symbol itself, by which its node is known, even if it is known to be something else.
        return mica.SymInt(mica._functions.symbolic.SymNode(symbol(name), self, int))

    def known_number(self, number):
        """A number of data as what it is known to be."""
        return self.create_symintnode(number.node._expr) if isinstance(number, mica.SymInt) else number

    def create_unbacked_symfloat(self):
        """A number that only data decide."""
        name = self._data_symbol("zuf")
        self._ranges.setdefault(name, (None, None))
        return mica.SymFloat(mica._functions.symbolic.SymNode(symbol(name), self, float))

    def stand_in(self, number):
        """A number that the engine gets in the place of one which only data decide, and by which that is known again."""
        found = next((value for value, each in self.stand_ins.items() if each.node.expr == number.node.expr), None)
        if found is None:
            found = 0.50000018310547 + len(self.stand_ins) * 1.31072e-7
            self.stand_ins[found] = number
        return found

    def _data_symbol(self, prefix):
        if self.expected:  # when a graph is run again, its symbols stay
            return self.expected.pop(0)
        self._unbacked[prefix] = self._unbacked.get(prefix, -1) + 1
        return Symbol(f"{prefix}{self._unbacked[prefix]}")

    def has_data(self):
        """Whether there are numbers that only data decide."""
        return bool(self._unbacked) or any(name.startswith("u") for name in self._ranges)

    def is_unbacked_symint(self, name):
        return str(name).startswith("u")

    def constrain_symbol_range(self, s, compiler_min, compiler_max):
        self._narrow(Symbol(str(s)), compiler_min, compiler_max)

    def _narrow(self, name, low, high):
        a, b = self._ranges.get(name, (0, None))
        low = a if low is None else low if a is None else max(a, low)
        high = b if high is None else high if b is None else min(b, high)
        if low is not None and high is not None and low > high:
            raise ConstraintViolationError(f"no value of {name} is left: {low} <= {name} <= {high}")
        self._ranges[name] = (low, high)

    # ---- what is known

    def replace(self, expr):
        """The expression with what is known of its symbols put in."""
        if not self.replacements or not isinstance(expr, Expression):
            return expr
        for _ in range(8):
            changed = expr.substituted(self.replacements)
            if changed == expr:
                break
            expr = changed
        return expr

    simplify = replace

    def size_hint(self, expr, *, allow_none=False):
        """The value in the example."""
        try:
            return (make(expr) if isinstance(expr, int) else expr).value(self.var_to_val)
        except KeyError:
            if allow_none:
                return None
            raise unanswerable(expr, self, is_question=False) from None

    def bound_sympy(self, expr, size_oblivious=False):
        return ValueRange(*expr.bounds(self._ranges))

    def evaluate_expr(self, orig_expr, hint=None, fx_node=None, size_oblivious=False, fallback_value=None):
        """The answer to a question, by what is known or by the example; the latter becomes a guard."""
        if isinstance(orig_expr, bool):
            return orig_expr
        if isinstance(orig_expr, Expression):
            return self.specialize(orig_expr)
        answer = orig_expr.decided(self)
        if answer is not None:
            return answer
        try:
            answer = orig_expr.value(self.var_to_val)
        except KeyError:
            for answer, truth in ((True, orig_expr), (False, orig_expr.negated())):
                if self.is_stated(truth):
                    return answer
            if fallback_value is not None:
                return fallback_value
            raise unanswerable(orig_expr, self) from None
        self.add_guard(orig_expr if answer else orig_expr.negated())
        return answer

    def specialize(self, expr):
        """The value of an expression in the example, which it has from now on."""
        expr = self.replace(make(expr))
        if not expr.is_number:
            value = self.size_hint(expr)
            ((atoms, factor), *others) = expr.terms.items()
            if not others and factor == 1 and getattr(atoms[0], "name", "") == "TrueDiv" and atoms[0].args[1] == 1:
                self.specialize(atoms[0].args[0])  # n / 1
                return value
            self.add_guard(Relation("==", expr, make(value)))
            if is_fractional(expr):  # no size follows from a quotient, so that all in it are fixed
                for name in expr.free_symbols:
                    number = self.var_to_val[name]
                    self.replacements[name], self._ranges[name] = make(number), (number, number)
            return value
        return expr.number

    def add_guard(self, relation):
        """Rely on a truth."""
        import traceback

        guard = ShapeGuard(relation, traceback.extract_stack(limit=12)[:-2])
        if any(each.expr == relation for each in self.guards):
            return
        if self.defers_guards and self.recorders and _facts_of_data.is_between_several(relation):
            if not self.is_stated(relation):
                self._assert(relation)
            return
        log.info("eval %s [guard added]", relation)
        self.guards.append(guard)
        self._learn(relation)

    def state(self, relation):
        """Whether a statement of the program about sizes (torch._check) holds.

        A statement about numbers that only data decide is believed, and asserted where the graph has the data.
        """
        if isinstance(relation, bool):
            return relation
        try:
            return self.evaluate_expr(relation)
        except GuardOnDataDependentSymNode:
            if not self.recorders:
                raise
        self.assume(relation)
        return True

    def assume(self, relation):
        """Believe what a program asserts of data, and write the assertion down: one for each of several truths."""
        if isinstance(relation, Joined) and relation.word == "and":
            for part in relation.parts:
                self.state(part)
            return
        if self.facts is not None and (found := _facts_of_data.of_relation(self, relation)):
            raise mica._subclasses.open_sizes.NeedsStatic(
                found, "a statement about sizes", unanswerable(relation, self)
            )
        relation = _facts_of_data.canonical(relation)
        self._assert(relation)
        self._learn(relation)

    def _assert(self, relation):
        """Let the graph assert something, which is believed from now on."""
        for recorder in self.recorders[-1:]:
            recorder.note_statement(relation)
        self.deferred_runtime_asserts.setdefault(max(relation.free_symbols), []).append(relation)

    def is_stated(self, truth):
        """Whether the program has stated something about data, or what is the same with the sides changed."""
        return _facts_of_data.follows(truth, self)

    def _learn(self, relation):
        if isinstance(relation, Joined):
            for part in relation.parts if relation.word == "and" else ():
                self._learn(part)
            return
        for sign, left, right in (
            (relation.sign, relation.left, relation.right),
            (TURNED[relation.sign], relation.right, relation.left),
            *solve(relation, any_factor=True),
        ):
            if not left.is_symbol:
                continue
            ((name,),) = left.terms
            if sign == "==" and name.startswith("u"):
                continue  # a trace that is to know it begins anew; a graph that is run again has to assert it again
            if sign == "==" and name not in right.free_symbols:
                self.replacements[name] = right
                if right.is_number and isinstance(right.number, int):
                    self._ranges[name] = (right.number, right.number)
                return
            if right.is_number and sign != "==":
                number = right.number
                if not isinstance(number, int) or name.startswith("z"):
                    return
                if sign == "!=":
                    low, high = self._ranges.get(name, (0, None))
                    self._narrow(name, low + 1 if low == number else None, high - 1 if high == number else None)
                    return
                self._narrow(
                    name,
                    number + (sign == ">") if sign in (">", ">=") else None,
                    number - (sign == "<") if sign in ("<", "<=") else None,
                )
                return

    # ---- guards as code

    def get_pruned_guards(self, symints):
        return list(self.guards)

    def get_nontrivial_guards(self):
        return [guard.expr for guard in self.guards]

    def format_guards(self, verbose=False):
        return "\n".join(f" - {guard.expr}" for guard in self.guards)

    def bind_symbols(self, placeholders, args):
        """{symbol: number} of arguments that are like the placeholders."""
        found = {}
        for fake, value in zip(placeholders, args, strict=True):
            sizes = zip(fake.shape, value.shape, strict=True) if isinstance(fake, mica.Tensor) else [(fake, value)]
            for open_size, size in sizes:
                if isinstance(open_size, mica.SymInt) and open_size.node._expr.is_symbol:
                    ((name,),) = open_size.node._expr.terms
                    found.setdefault(name, size)
        return found

    def evaluate_guards_for_args(self, placeholders, args, *, ignore_static=True):
        """Whether a graph made for the placeholders holds for the arguments."""
        values = self.bind_symbols(placeholders, args)
        for fake, value in zip(placeholders, args, strict=True):
            for size, given in zip(fake.shape, value.shape, strict=True) if isinstance(fake, mica.Tensor) else ():
                wanted = size.node._expr.value(values) if isinstance(size, mica.SymInt) else size
                if wanted != given:
                    return False
        for name, (low, high) in self._ranges.items():
            if name in values and (values[name] < low or (high is not None and values[name] > high)):
                return False
        return all(guard.expr.value(values) for guard in self.guards)

    def produce_guards_expression(self, placeholders, *, guards=None, ignore_static=True):
        return " and ".join(str(guard.expr) for guard in (guards or self.guards)) or None
