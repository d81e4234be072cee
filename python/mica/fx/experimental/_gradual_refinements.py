"""What operations say of sizes that have no numbers: which are equal, and how some are computed from others."""

import operator

import mica
from mica.fx.experimental._gradual_rules import argument, flattened_dims, type_of
from mica.fx.experimental._gradual_sizes import broadcast_types, calculate_out_dimension
from mica.fx.experimental.refinement_types import Equality
from mica.fx.tensor_type import TensorType

__all__ = [
    "all_eq", "conv_refinement_rule", "conv_rule", "element_wise_eq", "first_two_eq", "flatten_refinement_rule",
    "linear_refinement_rule", "register_algebraic_expressions_inference_rule", "register_refinement_rule",
]  # fmt: skip

# Both are by the function, or by the class of the module, that a node calls.
_REFINEMENT_RULES = {}
_RULES = {}


def register_refinement_rule(call_target):
    """Let the decorated function say which sizes are equal at such a node."""
    return _registering(_REFINEMENT_RULES, call_target, "Refinement rule")


def register_algebraic_expressions_inference_rule(call_target):
    """Let the decorated function write the sizes of such a node as expressions."""
    return _registering(_RULES, call_target, "Rule")


def _registering(rules, call_target, what):
    def register(rule):
        if call_target in rules:
            raise RuntimeError(f"{what} already registered for {call_target}!")
        rules[call_target] = rule
        return rule

    return register


def _sizes(n):
    """The sizes of a node's input and its own, where both are known to be tensors."""
    types = type_of(argument(n, 0, "input")), n.type
    return [each.dims for each in types] if all(isinstance(each, TensorType) for each in types) else None


def _first_equal(n, count):
    sizes = _sizes(n)
    return [Equality(*pair) for pair in zip(*(each[:count] for each in sizes), strict=False)] if sizes else []


@register_refinement_rule(mica.nn.Conv2d)
def conv_refinement_rule(n):
    """The batch stays."""
    return _first_equal(n, 1)


@register_refinement_rule(mica.nn.Linear)
def linear_refinement_rule(n):
    """The batch stays."""
    return _first_equal(n, 1)


@register_refinement_rule(mica.nn.BatchNorm2d)
@register_refinement_rule(mica.nn.ReLU)
def all_eq(n):
    """All sizes stay."""
    return _first_equal(n, None)


@register_refinement_rule(mica.nn.AdaptiveAvgPool2d)
@register_refinement_rule(mica.nn.MaxPool2d)
def first_two_eq(n):
    """The batch and the channels stay."""
    return _first_equal(n, 2)


@register_refinement_rule(mica.add)
@register_refinement_rule(operator.add)
def element_wise_eq(n):
    """Where both operands are known to have the same size, the result has it too; elsewhere one of them may be broadcast.

    That two of their sizes are the same may follow from other nodes alone, so that a second pass finds more.
    """
    operands = type_of(argument(n, 0, "input")), type_of(argument(n, 1, "other"))
    if not all(isinstance(each, TensorType) for each in (*operands, n.type)):
        return []
    first, second = broadcast_types(*operands)
    return [Equality(a, made) for a, b, made in zip(first.dims, second.dims, n.type.dims, strict=True) if a == b]


@register_refinement_rule(mica.flatten)
def flatten_refinement_rule(n):
    """The sizes before and behind those that are flattened stay."""
    sizes = _sizes(n)
    if not sizes:
        return []
    source, made = sizes
    first, last = flattened_dims(len(source), argument(n, 1, "start_dim", 0), argument(n, 2, "end_dim", -1))
    pairs = [*zip(made[:first], source[:first], strict=True), *zip(made[first + 1 :], source[last + 1 :], strict=True)]
    return [Equality(*pair) for pair in pairs]


@register_algebraic_expressions_inference_rule(mica.nn.Conv2d)
def conv_rule(n, module_instance):
    """The sides of an image, computed from those of the input."""
    sizes = _sizes(n)
    if not sizes:
        return None
    source, made = sizes
    sides = [calculate_out_dimension(side, module_instance, index) for index, side in enumerate(source[2:])]
    n.type = TensorType((made[0], made[1], *sides))
    return n.type
