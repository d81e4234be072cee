"""How many floating-point operations one operation takes, from the shapes of its inputs and results."""

from math import prod

__all__ = ["flop_registry", "flops_of_event", "node_formulas", "register_flop_formula"]

flop_registry = {}  # "aten::mm" -> formula(input shapes, result shapes)


def register_flop_formula(targets):
    """Decorate formula(inputs, results), lists of shapes, which counts the operations of these names: "mm", "conv2d"."""

    def register(formula):
        for name in [targets] if isinstance(targets, str) else targets:
            flop_registry[f"aten::{name.removeprefix('aten::')}"] = formula
        return formula

    return register


@register_flop_formula(["mm", "bmm", "matmul", "linear"])
def _product(inputs, results):
    return 2 * prod(results[0]) * inputs[0][-1]


@register_flop_formula(["addmm", "baddbmm"])
def _added_product(inputs, results):
    return 2 * prod(results[0]) * inputs[1][-1]


def _convolution_flops(points, weight):
    """Every point meets the whole filter; `points` is the shape that has as many points as filter positions."""
    return 2 * points[0] * prod(points[2:]) * prod(weight)


def _batched(shape, weight):
    return shape if len(shape) == len(weight) else [1, *shape]


@register_flop_formula(["conv1d", "conv2d", "conv3d", "convolution"])
def _convolution(inputs, results):
    return _convolution_flops(_batched(results[0], inputs[1]), inputs[1])


@register_flop_formula(["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"])
def _transposed_convolution(inputs, results):
    return _convolution_flops(_batched(inputs[0], inputs[1]), inputs[1])


@register_flop_formula("convolution_backward")
def _convolution_backward(inputs, results):
    grad, image, weight = inputs[:3]
    points = grad if grad[1] == weight[0] else image
    if grad[1] == image[1]:  # the channels do not tell whether it is transposed; strides shrink the other side
        points = min(grad, image, key=prod)
    flops = 0
    if results and results[0] is not None:
        flops += _convolution_flops(points, weight)
    if len(results) > 1 and results[1] is not None:
        flops += 2 * points[0] * prod(points[2:]) * grad[1] * image[1] * prod(weight[2:])
    return flops


@register_flop_formula("scaled_dot_product_attention")
def _attention(inputs, results):
    query, key, value = inputs[:3]
    rows = prod(query[:-1])
    return 2 * rows * key[-2] * (query[-1] + value[-1])


def attention_backward_flops(inputs):
    """The operations of attention's derivative, from the shapes of the forward's inputs."""
    query, key, value = inputs[:3]
    pairs = prod(query[:-1]) * key[-2]
    # The scores again, then the gradients of scores, query and key, and that of the value.
    return 2 * pairs * (3 * query[-1] + 2 * value[-1])


# Nodes that do their work themselves instead of calling operations.
node_formulas = {"ScaledDotProductFlashAttentionForCpuBackward0": attention_backward_flops}


def flops_of_event(event):
    """What an event counts for: 0 unless there is a formula for it and its shapes were recorded."""
    formula = flop_registry.get(event.name)
    if formula is None or not event.input_shapes or not event.result_shapes:
        return 0
    return int(formula(event.input_shapes, event.result_shapes))
