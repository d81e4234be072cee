"""Tables of decompositions: functions that compute an operator in terms of others, for make_fx, AOT autograd and exports.

Mica's own are those of `run_decompositions`, with which a graph has torch's core operators. Packages may register others.
"""

from mica._ops import OpOverloadPacket

__all__ = [
    "core_aten_decompositions", "decomposition_table", "get_decompositions", "meta_table", "pre_autograd_decomposition_table",
    "register_decomposition", "remove_decompositions",
]  # fmt: skip


def _own_rules():
    from mica._decomp.beyond_core import RULES
    from mica.export._core import core_table, is_mark

    return {op: rule for op, rule in core_table().items() if not is_mark(rule)} | RULES


def _registries():
    table = globals().get("decomposition_table") or __getattr__("decomposition_table")
    return {"post_autograd": table, "pre_autograd": pre_autograd_decomposition_table, "meta": meta_table}


def _overloads(ops):
    """The overloads of operators that are named one by one, in lists, or by their packets."""
    for op in ops if isinstance(ops, (list, tuple, set, frozenset)) else [ops]:
        if isinstance(op, OpOverloadPacket):
            yield from (getattr(op, name) for name in op.overloads())
        elif isinstance(op, (list, tuple, set, frozenset)):
            yield from _overloads(op)
        else:
            yield op


def register_decomposition(aten_op, registry=None, *, type="post_autograd", unsafe=False):
    """A decorator: the function is how an operator, or each of several, is computed from others."""
    if type not in (kinds := _registries()):
        raise AssertionError(f"Invalid type {type!r}, expected one of {set(kinds)}")
    table = kinds[type] if registry is None else registry

    def register(function):
        for op in _overloads(aten_op):
            if op in table:
                raise RuntimeError(f"duplicate registrations for {op}")
            table[op] = function
        return function

    return register


def get_decompositions(aten_ops, type="post_autograd"):
    """The entries of a table for these operators; those without an entry are left out."""
    if type not in (kinds := _registries()):
        raise AssertionError(f"Invalid type {type!r}, expected one of {set(kinds)}")
    return {op: kinds[type][op] for op in _overloads(list(aten_ops)) if op in kinds[type]}


def remove_decompositions(decompositions, aten_ops):
    """Take operators out of a table."""
    for op in _overloads(list(aten_ops)):
        decompositions.pop(op, None)


def core_aten_decompositions():
    """A new table with which graphs have torch's core operators."""
    from mica.export._core import core_table

    return core_table()


def __getattr__(name):
    if name == "decomposition_table":  # made when it is asked for: the rules need all operators
        made = globals()[name] = _own_rules()
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


pre_autograd_decomposition_table, meta_table = {}, {}
