"""Whether inputs are those that a program was exported for: what is fixed of them is compared, and what is open is bound."""

import sys

import mica
from mica import _C
from mica.fx.experimental._expressions import Call

__all__ = ["GuardsFn", "check", "paths"]


# Files whose callers match graphs as they are: as in torch, their modules have no node that checks inputs.
_MATCHING = ("executorch", "modai", "on_device_ai", "torchao")


def is_for_patterns():
    """Whether a package that matches patterns of graphs calls for a module."""
    frame = sys._getframe(1)
    while frame is not None:
        if any(path in frame.f_code.co_filename for path in _MATCHING):
            return True
        frame = frame.f_back
    return False


class GuardsFn(mica.nn.Module):
    """Compares the leaves of a call's inputs with what a program was exported for. It computes nothing, and yet it stays
    where unused nodes are removed."""

    _is_impure = True

    def __init__(self, expected, ranges, relations):
        super().__init__()
        self.expected, self.ranges, self.relations = expected, ranges, relations

    def forward(self, *leaves):
        check(leaves, self.expected, self.ranges, self.relations)


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
    sizes = []  # (place, number, expression) of what is open
    for leaf, (path, like) in zip(leaves, expected, strict=True):
        _check_one(leaf, path, like, sizes, ranges)
    values, first = {}, {}
    for place, given, expr in sizes:
        _bind(place, given, expr, values, first)
    places = {next(iter(expr.free_symbols)): place for expr, place in first.items() if expr.is_symbol}
    for relation in relations:
        # A size that has become a number since the export is compared as such.
        if relation.free_symbols <= values.keys() and not relation.value(values):
            _fail(_said(relation, places))


def _fail(text):
    raise AssertionError(f"Guard failed: {text}")


_SIGNS = {"FloorDiv": "//", "Mod": "%", "TrueDiv": "/"}


def _said(truth, places):
    """A truth as Python would write it, with the places of inputs for symbols, in torch's order: -1 + x.size()[0]."""
    if hasattr(truth, "parts"):
        return f" {truth.word} ".join(_said(part, places) for part in truth.parts)
    return f"{_text(truth.left, places)} {truth.sign} {_text(truth.right, places)}"


def _text(expr, places):
    terms = sorted(expr.terms.items(), key=lambda item: (item[0] != (), list(map(str, item[0]))))
    return " + ".join(_product(atoms, factor, places, len(terms) > 1) for atoms, factor in terms) or "0"


def _product(atoms, factor, places, is_part):
    parts = [str(factor)] if factor != 1 or not atoms else []
    for atom in atoms:
        if not isinstance(atom, Call):
            parts.append(places.get(atom, str(atom)))
        elif atom.name in _SIGNS:
            left, right = (_wrapped(each, places, i) for i, each in enumerate(atom.args))
            text = f"{left} {_SIGNS[atom.name]} {right}"
            parts.append(f"({text})" if is_part or len(atoms) > 1 or factor != 1 else text)
        else:
            name = {"Max": "max", "Min": "min"}.get(atom.name, atom.name)
            parts.append(f"{name}({', '.join(_text(each, places) for each in atom.args)})")
    return " * ".join(parts)


def _wrapped(expr, places, is_right):
    text = _text(expr, places)
    return f"({text})" if len(expr.terms) > 1 or (is_right and " " in text) else text


def _add(place, given, expr, sizes, ranges):
    low, high = expr.bounds(ranges)
    if low is not None and low == high and given != low:
        _fail(f"{place} == {low}")
    if low is not None and given < low:
        _fail(f"{place} >= {low}")
    if high is not None and given > high:
        _fail(f"{place} <= {high}")
    sizes.append((place, given, expr))


def _check_one(value, path, like, sizes, ranges):
    if isinstance(like, mica.SymInt):
        if type(value) is not int and not isinstance(value, mica.SymInt):
            _fail(f"{path} is a whole number")
        _add(path, value, like.node.expr, sizes, ranges)
    elif not isinstance(like, _C.TensorBase):
        if value is not like and value != like:
            _fail(f"{path} == {like!r}")
    elif not isinstance(value, _C.TensorBase) or value.dim() != like.dim():
        _fail(f"{path} is a tensor of {like.dim()} dimensions")
    else:
        for axis, size in enumerate(like.shape):
            place, given = f"{path}.size()[{axis}]", value.size(axis)
            if isinstance(size, mica.SymInt):
                _add(place, given, size.node.expr, sizes, ranges)
            elif given != size:
                _fail(f"{place} == {size}")


def _bind(place, given, expr, values, first):
    """A size that is open: a symbol that is new gets its value, and others follow from it."""
    if expr.is_number:
        if given != expr.number:
            _fail(f"{place} == {expr}")
        return
    if expr in first:
        if expr.value(values) != given:
            _fail(f"{place} == {first[expr]}")
        return
    if not expr.free_symbols <= values.keys():
        if len(expr.free_symbols) > 1:
            return
        (symbol,) = expr.free_symbols
        start, step = _line(expr, symbol)
        if (given - start) % step:
            _fail(f"{place} % {step} == {start % step}")
        values[symbol] = (given - start) // step
    elif expr.value(values) != given:
        _fail(_relation(place, expr, first))
    first[expr] = place


def _line(expr, symbol):
    """(a, b) of an expression a + b * symbol."""
    start = expr.value({symbol: 0})
    return start, expr.value({symbol: 1}) - start


def _relation(place, expr, first):
    """The text of a relation between a size and an earlier one by the same symbol."""
    for other, known in first.items():
        if other.free_symbols != expr.free_symbols or len(expr.free_symbols) > 1:
            continue
        (symbol,) = expr.free_symbols
        (start, step), (begin, stride) = _line(expr, symbol), _line(other, symbol)
        if step % stride == 0:  # the size is a + b * the earlier one
            times, plus = step // stride, start - begin * (step // stride)
            return f"{known} == {_sum(-plus, 1, place)}" if times == 1 else f"{_sum(plus, times, known)} == {place}"
    places = {next(iter(known.free_symbols)): path for known, path in first.items() if known.is_symbol}
    return f"{_text(expr, places)} == {place}"


def _sum(number, times, place):
    text = place if times == 1 else f"{times} * {place}"
    return f"{number} + {text}" if number else text
