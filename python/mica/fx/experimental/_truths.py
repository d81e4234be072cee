"""Truths about sizes: comparisons of expressions, and what is known of their values."""

from typing import Any, NamedTuple

from mica.fx.experimental._expressions import Symbol, make, symbol

__all__ = ["TURNED", "Joined", "Relation", "ValueRange", "solve"]

_NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_SYMPYS = {"==": "Equality", "!=": "Unequality", "<": "StrictLessThan", "<=": "LessThan", ">": "StrictGreaterThan",
           ">=": "GreaterThan"}  # fmt: skip
TURNED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "==": "==", "!=": "!="}


class Relation:
    """A comparison of two expressions."""

    __slots__ = ("difference", "left", "right", "sign")

    def __init__(self, sign, left, right):
        self.sign, self.left, self.right, self.difference = sign, left, right, left - right

    @staticmethod
    def make(sign, left, right):
        made = Relation(sign, make(left), make(right))
        return made.of_number(made.difference.number) if made.difference.is_number else made

    def of_number(self, difference):
        return {"==": difference == 0, "!=": difference != 0, "<": difference < 0, "<=": difference <= 0,
                ">": difference > 0, ">=": difference >= 0}[self.sign]  # fmt: skip

    @property
    def free_symbols(self):
        return self.difference.free_symbols

    def negated(self):
        return Relation(_NEGATED[self.sign], self.left, self.right)

    def decided(self, env):
        """True or False if that follows from what is known of the sizes; None otherwise."""
        difference = env.replace(self.difference)
        if difference.is_number:
            return self.of_number(difference.number)
        low, high = difference.bounds(env._ranges)
        answers = {self.of_number(end) for end in (low, high) if end is not None}
        if self.sign in ("==", "!="):
            apart = (low is not None and low > 0) or (high is not None and high < 0)
            return (self.sign == "!=") if apart else None
        if low is not None and high is not None:
            return answers.pop() if len(answers) == 1 else None
        # One end decides if it is the worst case.
        if low is not None and self.of_number(low) is (self.sign in (">", ">=")):
            return self.of_number(low)
        if high is not None and self.of_number(high) is (self.sign in ("<", "<=")):
            return self.of_number(high)
        return None

    def value(self, values):
        return self.of_number(self.difference.value(values))

    def in_sympys_words(self):
        return f"{_SYMPYS[self.sign]}({self.left.in_sympys_words()}, {self.right.in_sympys_words()})"

    def __eq__(self, other):
        return isinstance(other, Relation) and (self.sign, self.difference) == (other.sign, other.difference)

    def __hash__(self):
        return hash((self.sign, self.difference))

    def __str__(self):
        if self.sign in ("==", "!="):
            return f"{'Eq' if self.sign == '==' else 'Ne'}({self.left}, {self.right})"
        return f"{self.left} {self.sign} {self.right}"

    __repr__ = __str__


class Joined:
    """Truths joined by "and" or "or"."""

    def __init__(self, word, parts):
        inner = [part.parts if isinstance(part, Joined) and part.word == word else (part,) for part in parts]
        self.word, self.parts = word, tuple(each for found in inner for each in found)

    free_symbols = property(lambda self: set().union(*(part.free_symbols for part in self.parts)))

    def negated(self):
        return Joined("or" if self.word == "and" else "and", [part.negated() for part in self.parts])

    def decided(self, env):
        answers = [part.decided(env) for part in self.parts]
        decisive = self.word == "or"
        if decisive in answers:
            return decisive
        return None if None in answers else not decisive

    def in_sympys_words(self):
        return f"{self.word.capitalize()}({', '.join(part.in_sympys_words() for part in self.parts)})"

    def value(self, values):
        return (all if self.word == "and" else any)(part.value(values) for part in self.parts)

    def __str__(self):
        texts = [f"{part}" if getattr(part, "sign", "") in ("==", "!=") else f"({part})" for part in self.parts]
        return (" & " if self.word == "and" else " | ").join(texts)

    __repr__ = __str__


class ValueRange(NamedTuple):
    """The least and the greatest value of a size; None where there is none."""

    lower: Any
    upper: Any

    def __repr__(self):
        return (
            f"VR[{'-int_oo' if self.lower is None else self.lower}, {'int_oo' if self.upper is None else self.upper}]"
        )

    __str__ = __repr__


def solve(relation, any_factor=False):
    """[(sign, symbol, number)] of a relation between one symbol and numbers: s + 2 <= 64 says that s <= 62. With `any_factor`
    that of a multiple of it, too: 3 * s >= 10 says that s > 3."""
    terms = dict(relation.difference.terms)
    number = terms.pop((), 0)
    ((atoms, factor),) = terms.items() if len(terms) == 1 else [((), 0)]
    is_whole = isinstance(factor, int) and isinstance(number, int) and factor and any_factor
    if len(atoms) != 1 or not isinstance(atoms[0], Symbol) or not (factor in (1, -1) or is_whole):
        return []
    sign = relation.sign if factor > 0 else TURNED[relation.sign]
    if factor not in (1, -1) and number % factor:
        if sign in ("==", "!="):
            return []
        sign, bound = (">", -number // factor) if sign in (">", ">=") else ("<", -(number // factor))
        return [(sign, symbol(atoms[0]), make(bound))]
    return [(sign, symbol(atoms[0]), make(-number * factor if factor in (1, -1) else -number // factor))]
