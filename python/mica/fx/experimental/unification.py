"""Unification: the values of variables with which two structures are the same."""

import itertools

__all__ = ["Var", "isvar", "reify", "unify"]

_numbers = itertools.count(1)


class Var:
    """A variable. Two of the same token are the same variable; without one it is a new one."""

    def __init__(self, *token):
        self.token = f"_{next(_numbers)}" if not token else token[0] if len(token) == 1 else token

    def __eq__(self, other):
        return type(self) is type(other) and self.token == other.token

    def __hash__(self):
        return hash((type(self), self.token))

    def __repr__(self):
        return f"~{self.token}"


def isvar(value):
    """Whether a value is a variable."""
    return isinstance(value, Var)


def unify(u, v, s=None):
    """The values of variables, added to those of `s`, with which u and v are equal; False where there are none."""
    known = dict(s or {})
    pending = [(u, v)]
    while pending:
        left, right = (_value(each, known) for each in pending.pop())
        if isvar(left) or isvar(right):
            name, value = (left, right) if isvar(left) else (right, left)
            if name != value:
                known[name] = value
        elif isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
            if len(left) != len(right):
                return False
            pending += reversed(list(zip(left, right, strict=True)))
        elif left != right:
            return False
    return known


def reify(e, s):
    """A structure of tuples, lists and dicts in which variables have their values of `s`."""
    e = _value(e, s)
    if isinstance(e, (tuple, list)):
        return type(e)(reify(each, s) for each in e)
    return {key: reify(each, s) for key, each in e.items()} if isinstance(e, dict) else e


def _value(term, known):
    """What a variable stands for, where it is known; other terms are themselves."""
    while isvar(term) and term in known:
        term = known[term]
    return term
