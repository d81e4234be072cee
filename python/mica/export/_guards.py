"""Whether inputs are those that a program was exported for: what is fixed of them is compared, and what is open is bound."""

import mica
from mica import _C

__all__ = ["check", "paths"]


def paths(in_spec, names):
    """How the leaves of a program's inputs are reached from its arguments: x, ys[0], z['k']."""
    positional, named = in_spec.children_specs
    found = []
    for name, spec in zip(names, positional.children_specs, strict=False):
        _walk(spec, name, found)
    for name, spec in zip(named.context, named.children_specs, strict=True):
        _walk(spec, name, found)
    return found


def _walk(spec, path, found):
    if spec.is_leaf():
        found.append(path)
    for i, child in enumerate(spec.children_specs):
        key = f"[{spec.context[i]!r}]" if spec.type is dict else f"[{i}]"
        _walk(child, path + key, found)


def check(leaves, expected, ranges, relations):
    """Raise AssertionError, in torch's words, if an input differs from the example in something that is not open."""
    values, places = {}, {}
    for leaf, (path, like) in zip(leaves, expected, strict=True):
        _check_one(leaf, path, like, values, places, ranges)
    for relation in relations:
        if not relation.value(values):
            _fail(_said(relation, places))


def _fail(text):
    raise AssertionError(f"Guard failed: {text}")


def _said(expression, places):
    text = str(expression)
    for symbol in sorted(places, key=len, reverse=True):
        text = text.replace(symbol, places[symbol])
    return text


def _check_one(value, path, like, values, places, ranges):
    if isinstance(like, mica.SymInt):
        if type(value) is not int:
            _fail(f"{path} is a whole number")
        _bind(value, path, like.node.expr, values, places, ranges)
    elif not isinstance(like, _C.TensorBase):
        if value is not like and value != like:
            _fail(f"{path} == {like!r}")
    elif not isinstance(value, _C.TensorBase) or value.dim() != like.dim():
        _fail(f"{path} is a tensor of {like.dim()} dimensions")
    elif value.dtype != like.dtype:
        _fail(f"{path}.dtype == {like.dtype}")
    else:
        for axis, size in enumerate(like.shape):
            place, given = f"{path}.size()[{axis}]", value.size(axis)
            if isinstance(size, mica.SymInt):
                _bind(given, place, size.node.expr, values, places, ranges)
            elif given != size:
                _fail(f"{place} == {size}")


def _bind(given, place, expr, values, places, ranges):
    """A size that is open: a symbol that is new gets its value, and others follow from it."""
    if expr.is_number:
        if given != expr.number:
            _fail(f"{place} == {expr}")
        return
    if expr.is_symbol and (symbol := next(iter(expr.free_symbols))) not in values:
        low, high = ranges.get(symbol, (0, None))
        if low is not None and given < low:
            _fail(f"{place} >= {low}")
        if high is not None and given > high:
            _fail(f"{place} <= {high}")
        values[symbol] = given
        places[symbol] = place
    elif expr.free_symbols <= values.keys():
        if expr.value(values) != given:
            _fail(f"{place} == {_said(expr, places)}")
    elif len(expr.free_symbols) == 1:
        (symbol,) = expr.free_symbols
        start, step = expr.value({symbol: 0}), expr.value({symbol: 1}) - expr.value({symbol: 0})
        values[symbol] = (given - start) // step
        if expr.value(values) != given:
            _fail(f"{place} == {expr}")
