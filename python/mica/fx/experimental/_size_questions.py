"""Questions that programs ask of open sizes: by what is known, by the example, or without an answer."""

import mica
from mica.fx.experimental._expressions import Expression
from mica.fx.experimental._truths import Joined, Relation


def _known(a, worth):
    if isinstance(a, mica.SymBool):
        return a.node._expr.decided(a.node.shape_env) is worth
    return a is worth or (isinstance(a, (int, float)) and bool(a) is worth)


def is_nested_int(s):
    """Whether a size differs from sequence to sequence of a nested tensor."""
    from mica.nested._internal.nested_tensor import NestedInt

    return isinstance(s, NestedInt)


def statically_known_true(x):
    """Whether something holds for every size; adds no guard."""
    return _known(x, True)


def statically_known_false(x):
    """Whether something holds for no size; adds no guard."""
    return _known(x, False)


def guard_or_false(a):
    """The answer; False if only data decide it."""
    return _guarded(a, False)


def guard_or_true(a):
    """The answer; True if only data decide it."""
    return _guarded(a, True)


def _guarded(a, otherwise):
    if not isinstance(a, mica.SymBool):
        return bool(a)
    return a.node.shape_env.evaluate_expr(a.node._expr, fallback_value=otherwise)


def guard_size_oblivious(expr):
    """The answer to a question."""
    return bool(expr)


guard_bool = guard_size_oblivious


def guard_int(a):
    """The number in the example, which the size has from now on."""
    return int(a)


def guard_float(a):
    """The number in the example, which it has from now on."""
    return float(a)


def guard_scalar(a):
    """The number or truth in the example, which it has from now on."""
    if isinstance(a, (mica.SymBool, bool)):
        return bool(a)
    return int(a) if isinstance(a, (mica.SymInt, int)) else float(a)


def is_symbolic(val):
    """Whether a value is open."""
    return isinstance(val, (mica.SymInt, mica.SymFloat, mica.SymBool))


def is_concrete_int(a):
    """Whether a whole number is known for every size."""
    return not isinstance(a, mica.SymInt) or a.node.expr.is_number


def is_concrete_float(a):
    """Whether a number is known for every size."""
    return not isinstance(a, mica.SymFloat) or a.node.expr.is_number


def is_concrete_bool(a):
    """Whether a truth is known for every size."""
    return not isinstance(a, mica.SymBool) or a.node._expr.decided(a.node.shape_env) is not None


has_static_value = is_concrete_int


def hint_int(a, fallback=None):
    """The value in the example; adds no guard."""
    return a.node.require_hint(fallback) if isinstance(a, mica.SymInt) else a


size_hint = hint_int


def free_symbols(val):
    """The symbols in a value, a tensor's sizes or a nest of them."""
    if isinstance(val, (mica.SymInt, mica.SymFloat)):
        return val.node.expr.free_symbols
    if isinstance(val, (mica.SymBool,)):
        return val.node._expr.free_symbols
    if isinstance(val, (Expression, Relation, Joined)):
        return val.free_symbols
    if isinstance(val, mica.Tensor):
        return free_symbols(tuple(val.shape))
    if isinstance(val, (tuple, list)):
        return set().union(*map(free_symbols, val)) if val else set()
    return set()


def free_unbacked_symbols(x):
    """The symbols in a value that only data decide."""
    return {name for name in free_symbols(x) if name.startswith(("u", "zuf"))}


def has_free_symbols(val):
    """Whether anything in a value is open."""
    return bool(free_symbols(val))


def has_free_unbacked_symbols(x):
    """Whether only data decide something in a value."""
    return bool(free_unbacked_symbols(x))


def is_accessor_node(node):
    """Whether a node of a graph only reads a size."""
    names = ("sym_size", "sym_stride", "sym_storage_offset", "sym_numel")
    return (
        node.op == "call_function" and getattr(getattr(node.target, "_overloadpacket", None), "__name__", "") in names
    )


def canonicalize_bool_expr(expr):
    """The truth as it is: it has one form."""
    return expr


def sym_eq(x, y):
    """Whether two nests of sizes are equal, as one truth."""
    if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
        if len(x) != len(y):
            return False
        found = True
        for a, b in zip(x, y, strict=True):
            found = sym_and(found, sym_eq(a, b))
        return found
    return x == y


def sym_and(x, *others):
    """Truths joined by "and", left open where they are."""
    for each in others:
        x = (x & each) if isinstance(x, mica.SymBool) else (each if x else False)
    return x


def sym_or(x, *others):
    """Truths joined by "or", left open where they are."""
    for each in others:
        x = (x | each) if isinstance(x, mica.SymBool) else (True if x else each)
    return x


parallel_and, parallel_or = sym_and, sym_or
