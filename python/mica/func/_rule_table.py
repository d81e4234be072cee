"""The table of the rules by which vmap calls operations for all examples at once."""

from mica import _C

RULES = {}
# The space that a function is found in, for functions that share their name with another one of torch's.
_SPACES = {
    function: space
    for space, found_in in (("functional", _C._nn_functional), ("linalg", _C._linalg))
    for function in vars(found_in).values()
    if callable(function)
}


def rule(*names, space=None):
    """Enter a rule: a function of a Call that returns the values of all examples, or NotImplemented.

    A rule of a space is for the functions of that space only. A function without such a rule has the rule of its name.
    """

    def enter(function):
        for name in names:
            RULES[name if space is None else (space, name)] = function
        return function

    return enter


def rule_for(func, name):
    space = _SPACES.get(func)
    return (RULES.get((space, name)) if space else None) or RULES.get(name)


class Plain:
    """A result of a rule that is not a batch, and is returned as it is."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value
