"""What a trace finds out about sizes that only data decide: that one is an expression of others, or a multiple of a number.

The tensors that a trace has made have sizes in which that does not hold (_worlds.py). So the trace begins anew and knows the
fact from the start: the symbol is the expression in every world, and the graph asserts it where it first has the size.
"""

import itertools
import math
from typing import NamedTuple

import mica
from mica.fx.experimental._expressions import Call, Expression, Symbol, make, modulo, symbol
from mica.fx.experimental._truths import TURNED, Joined, Relation, solve
from mica.utils._pytree import tree_leaves

__all__ = [
    "Multiple",
    "among",
    "apply",
    "candidates",
    "canonical",
    "follows",
    "is_between_several",
    "of_data",
    "of_relation",
    "solved",
    "symbols_of_data",
    "trial_values",
]

_FIRST_PART = 1000  # numbers of symbols that stand for a part of a size: u1000


class Multiple(NamedTuple):
    """A size is this many times a whole number."""

    of: int


def among(presets):
    """Those of what an earlier trace has found out about sizes that are about symbols of data."""
    return {name: fact for name, fact in dict(presets).items() if isinstance(fact, (Expression, Multiple))}


def of_data(expr):
    """The whole numbers in an expression that only data decide."""
    return {name for name in expr.free_symbols if name.startswith("u")}


def symbols_of_data(value):
    """The symbols that only data decide in a value, by which they are known, whatever is known of them."""
    found = set()
    for leaf in tree_leaves(value):
        number = [leaf.node._expr] if isinstance(leaf, (mica.SymInt, mica.SymFloat, mica.SymBool)) else ()
        for size in (*number, *getattr(leaf, "__dict__", {}).get("_sizes", ())):
            found |= set() if isinstance(size, int) else size.free_symbols
    return {name for name in found if name.startswith(("u", "zuf"))}


def _order(name):
    """The place of a symbol in the order in which they are made: sizes of inputs come first."""
    return (name.startswith("u"), len(name), name)


def solved(name, difference):
    """The expression that a symbol has where the difference is zero; None where it has none of whole factors."""
    factor = difference.terms.get((name,), 0)
    rest = Expression({atoms: each for atoms, each in difference.terms.items() if atoms != (name,)})
    if not factor or name in rest.free_symbols or any(each % factor for each in rest.terms.values()):
        return None
    return Expression({atoms: -each // factor for atoms, each in rest.terms.items()})


def _solved(name, difference):
    """The same, made of symbols that were there before it."""
    if any(_order(other) > _order(name) for other in difference.free_symbols):
        return None
    return solved(name, difference)


def of_relation(env, relation):
    """{symbol: fact} that a relation says of a symbol, where it does not hold in the worlds; {} of others.

    A size is not negative in any world, and it is not one of the small numbers for which operations have rules of their own.
    """
    if not isinstance(relation, Relation) or relation.sign != "==":
        return {}
    difference = env.replace(relation.difference)
    for name in sorted(of_data(difference), key=_order, reverse=True):
        if env._ranges.get(name) == (0, 1):
            continue  # a truth
        fact = _solved(name, difference)
        if fact is not None:
            fits = all(number >= 2 for number in env.worlds.vector(fact)) or (fact.is_number and fact.number >= 0)
            return {name: fact} if fits else {}
    ((atoms, _),) = difference.terms.items() if len(difference.terms) == 1 else [((), 0)]
    if len(atoms) == 1 and isinstance(atoms[0], Call) and atoms[0].name == "Mod":
        left, right = atoms[0].args
        if left.is_symbol and right.is_number and of_data(left):
            return {next(iter(left.free_symbols)): Multiple(right.number)}
    return {}


_IMPLIED = {"==": ("==", ">=", "<="), "<": ("<", "<=", "!="), ">": (">", ">=", "!="), "<=": ("<=",), ">=": (">=",),
            "!=": ("!=",)}  # fmt: skip


def follows(truth, env):
    """Whether a truth is one that a program has stated of data, or a weaker one of the same difference."""
    stated = [each for relations in env.deferred_runtime_asserts.values() for each in relations]
    if truth in stated or not isinstance(truth, Relation):
        return truth in stated
    difference = env.replace(truth.difference)
    for each in stated:
        if isinstance(each, Relation):
            known = env.replace(each.difference)
            if known == difference and truth.sign in _IMPLIED[each.sign]:
                return True
            if known == -difference and truth.sign in _IMPLIED[TURNED[each.sign]]:
                return True
    return False


def is_between_several(relation):
    """Whether a truth is about several sizes, and does not say that two are equal: no range, and no name, says the same."""
    if isinstance(relation, Joined):
        return any(map(is_between_several, relation.parts))
    is_equality = relation.sign == "==" and all(each.is_simple() for each in (relation.left, relation.right))
    return len(relation.free_symbols) > 1 and not is_equality


def canonical(relation):
    """The relation with its number moved to the right, as torch writes what it asserts: u0 >= 3 for u0 > 2, Eq(u0, u1)."""
    if not isinstance(relation, Relation):
        return relation
    solved = solve(relation)
    if len(solved) == 1:
        ((sign, left, right),) = solved
        if isinstance(right.number, int) and not str(left).startswith("z"):
            if sign in ("<", ">"):
                sign, right = sign + "=", right + (1 if sign == ">" else -1)
            return Relation(sign, left, right)
    return relation


def apply(env, name, fact):
    """A new symbol about which a fact is known; what the graph has to assert of it."""
    least, greatest = env._ranges[name]
    if isinstance(fact, Multiple):
        part = Symbol(f"u{_FIRST_PART + len(env.parts)}")
        env.parts[part] = (name, fact.of)
        env._ranges[part] = (None if least is None else -(-least // fact.of), greatest and greatest // fact.of)
        env.worlds.add_later(part)
        expr, stated = symbol(part) * fact.of, [Relation("==", modulo(symbol(name), make(fact.of)), make(0))]
    elif fact.is_number:
        expr, stated = fact, [Relation(sign, symbol(name), fact) for sign in (">=", "<=")]
    else:
        expr, stated = fact, [Relation("==", *((fact, symbol(name)) if fact.is_symbol else (symbol(name), fact)))]
    env.replacements[name] = expr
    env.worlds.derive(name, expr)
    env.to_assert[name] = stated


def candidates(env, sizes, totals, numbers, wholes=()):
    """[{symbol: fact}] that may let an operation work which fails for the sizes as they are, the likelier ones first.

    Args:
        sizes: those of the arguments, any two of which may have to be equal
        totals: pairs of sums or products of sizes that may have to be equal
        numbers: divisors that the arguments mention
        wholes: how many elements the arguments have
    """
    sizes = list(dict.fromkeys(make(each) if isinstance(each, int) else env.replace(each) for each in sizes))
    single = [
        of_relation(env, Relation("==", make(a), make(b)))
        for a, b in (*itertools.combinations(sizes, 2), *totals)
        if of_data(make(a)) or of_data(make(b))
    ]
    multiples = []
    for expr in (*sizes, *wholes, *(total for pair in totals for total in pair)):
        expr = env.replace(make(expr))
        for name, number in itertools.product(sorted(of_data(expr)), dict.fromkeys(numbers)):
            common = math.gcd(*expr.terms.values(), number)
            multiples += [(number // common, name)] if number != common else []
    single += [{name: Multiple(of)} for of, name in sorted(multiples)]  # the smallest relies on the least
    single = [each for i, each in enumerate(single) if each and each not in single[:i]]
    single.sort(key=_is_of_number)  # two that follow from data are rather equal than both of a fixed size
    pairs = [{**a, **b} for a, b in itertools.combinations(single, 2) if not a.keys() & b.keys()]
    found = single + (pairs if len(single) <= 12 else [])
    return sorted(found, key=_has_one)  # a size of 1 would fit because it is repeated


def _is_of_number(facts):
    return any(isinstance(fact, Expression) and fact.is_number for fact in facts.values())


def _has_one(facts):
    return any(isinstance(fact, Expression) and fact == make(1) for fact in facts.values())


def trial_values(facts, values):
    """The numbers of a world in which facts hold."""
    changed = dict(values)
    for name, fact in facts.items():
        if isinstance(fact, Multiple):
            changed[name] = changed[name] // fact.of * fact.of
    for name, fact in facts.items():
        if isinstance(fact, Expression):
            changed[name] = fact.value(changed)
    return changed
