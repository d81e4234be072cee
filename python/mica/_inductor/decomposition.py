"""Decompositions of operators. As in torch, `decompositions` has what packages register. Mica's own operators run as
they are."""

decompositions = {}


def register_decomposition(ops):
    """A decorator: the function is how an operator, or each of several, is computed from others."""

    def register(function):
        decompositions.update(dict.fromkeys(ops if isinstance(ops, (list, tuple)) else [ops], function))
        return function

    return register
