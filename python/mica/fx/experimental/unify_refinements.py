"""Sizes by name: which of a graph's unknown sizes are the same, and what some are in terms of others."""

from mica.fx.experimental.graph_gradual_typechecker import Refine, _mapped
from mica.fx.experimental.unification import unify

__all__ = [
    "check_for_type_equality", "convert_eq", "infer_symbolic_types", "infer_symbolic_types_single_pass",
    "substitute_all_types", "substitute_solution_one_type", "unify_eq",
]  # fmt: skip


def infer_symbolic_types_single_pass(traced):
    """Name the unknown sizes of a graph whose types were checked, equal ones alike."""
    refine = Refine(traced)
    refine.refine()
    substitute_all_types(traced.graph, unify_eq(refine.constraints))
    return refine


def infer_symbolic_types(traced):
    """Infers types in two passes, of which the second knows more about sums, and then writes them as expressions of sympy."""
    infer_symbolic_types_single_pass(traced)
    infer_symbolic_types_single_pass(traced).symbolic_relations()


def convert_eq(list_of_eq):
    """The left sides of equalities, and their right sides."""
    return tuple(each.lhs for each in list_of_eq), tuple(each.rhs for each in list_of_eq)


def unify_eq(list_of_eq):
    """The values of variables with which equalities are true. Where there are none, it is a TypeError."""
    values = unify(*convert_eq(list_of_eq))
    if values is False:
        raise TypeError(f"No sizes satisfy all of these: {', '.join(map(str, list_of_eq))}")
    return values


def substitute_solution_one_type(mapping, t):
    """A type in which variables have their values."""
    return _mapped(t, lambda part: _end(mapping, part))


def substitute_all_types(graph, mapping):
    """Give the types of all nodes the values of their variables."""
    for node in graph.nodes:
        node.type = substitute_solution_one_type(mapping, node.type)


def check_for_type_equality(g1, g2):
    """Whether the nodes of two graphs have the same types."""
    return all(a.type == b.type for a, b in zip(g1.nodes, g2.nodes, strict=False))


def _end(mapping, part):
    """What a part of a type stands for, over all steps."""
    while part in mapping:
        part = mapping[part]
    return part
