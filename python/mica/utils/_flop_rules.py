"""How many floating-point operations an operator takes: a multiplication and an addition count as two."""

import functools
from math import prod

import mica
from mica.utils._pytree import tree_map, tree_map_

aten = mica.ops.aten
flop_registry = {}  # torch.ops.aten.mm -> formula(*args, out_val=result, **kwargs)


def get_shape(i):
    """The shape of a tensor; anything else as it is."""
    return i.shape if isinstance(i, mica.Tensor) else i


def shape_wrapper(f):
    """A formula of shapes as one of tensors: it gets the result's shape as out_shape."""

    @functools.wraps(f)
    def of_tensors(*args, out_val=None, **kwargs):
        args, kwargs, out_shape = tree_map(get_shape, (args, kwargs, out_val))
        return f(*args, out_shape=out_shape, **kwargs)

    return of_tensors


def register_flop_formula(targets, get_raw=False):
    """Decorate the formula of one or several operators; with get_raw it gets tensors in place of shapes."""
    from mica._ops import HigherOrderOperator, OpOverloadPacket

    def register(formula):
        formula = formula if get_raw else shape_wrapper(formula)

        def enter(target):
            if not isinstance(target, (OpOverloadPacket, HigherOrderOperator)):
                raise ValueError(
                    "register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. "
                    f"torch.ops.mylib.foo), JitFunction, or HigherOrderOperator, got {target} which is of type "
                    f"{type(target)}"
                )
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = formula

        tree_map_(enter, targets)
        return formula

    return register


def _named(*names):
    """The operators of these names that there are."""
    return [packet for packet in (getattr(aten, name, None) for name in names) if packet is not None]


@register_flop_formula(aten.mm)
def mm_flop(a_shape, b_shape, *args, out_shape=None, **kwargs):
    """A product of matrices: two operations for every element of a row that meets one of a column."""
    (rows, inner), (other, columns) = a_shape, b_shape
    if inner != other:
        raise AssertionError(f"matmul: inner dimensions must match (k == k2), got {inner} and {other}")
    return 2 * rows * inner * columns


@register_flop_formula(aten.addmm)
def addmm_flop(self_shape, a_shape, b_shape, out_shape=None, **kwargs):
    """As the product alone."""
    return mm_flop(a_shape, b_shape)


@register_flop_formula(aten.bmm)
def bmm_flop(a_shape, b_shape, out_shape=None, **kwargs):
    """As many products as there are pairs of matrices."""
    if a_shape[0] != b_shape[0]:
        raise AssertionError(f"bmm: batch dimensions must match (b == b2), got {a_shape[0]} and {b_shape[0]}")
    return a_shape[0] * mm_flop(a_shape[1:], b_shape[1:])


@register_flop_formula(aten.baddbmm)
def baddbmm_flop(self_shape, a_shape, b_shape, out_shape=None, **kwargs):
    """As the products alone."""
    return bmm_flop(a_shape, b_shape)


@register_flop_formula(_named("_scaled_mm"))
def _scaled_mm_flop(a_shape, b_shape, *args, out_shape=None, **kwargs):
    return mm_flop(a_shape, b_shape)


def conv_flop_count(x_shape, w_shape, out_shape, transposed=False):
    """The whole filter meets every point of the result, or of the input where the convolution is transposed."""
    points = x_shape if transposed else out_shape
    return 2 * x_shape[0] * prod(points[2:]) * prod(w_shape)


@register_flop_formula(_named("convolution", "_convolution", "cudnn_convolution", "convolution_overrideable"))
def conv_flop(x_shape, w_shape, _bias, _stride, _padding, _dilation, transposed, *args, out_shape=None, **kwargs):
    """A convolution; its bias is left out."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed=transposed)


@register_flop_formula(aten.convolution_backward)
def conv_backward_flop(grad_out_shape, x_shape, w_shape, _bias, _stride, _padding, _dilation, transposed,
                       _output_padding, _groups, output_mask, out_shape, **kwargs):  # fmt: skip
    """Two convolutions: of the gradient by the filter turned round, and of the input by the gradient."""

    def swapped(shape):
        return [shape[1], shape[0], *shape[2:]]

    flops = 0
    if output_mask[0]:
        flops += conv_flop_count(grad_out_shape, w_shape, out_shape[0], not transposed)
    if output_mask[1]:
        image, filters = (grad_out_shape, x_shape) if transposed else (x_shape, grad_out_shape)
        flops += conv_flop_count(swapped(image), swapped(filters), swapped(out_shape[1]), transposed=False)
    return flops


def sdpa_flop_count(query_shape, key_shape, value_shape):
    """Attention: queries times keys, scores times values, for each head of the queries."""
    b, heads, length, width = query_shape
    _, key_heads, keys, key_width = key_shape
    if key_width != width or value_shape[:3] != key_shape[:3] or key_shape[0] != b or heads % key_heads:
        raise AssertionError(
            f"sdpa_flop_count: query/key/value shapes are incompatible: q={query_shape}, k={key_shape}, v={value_shape}"
        )
    return 2 * b * heads * length * keys * (width + value_shape[-1])


def sdpa_backward_flop_count(grad_out_shape, query_shape, key_shape, value_shape):
    """The scores again, then the gradients of scores, query and key, and that of the value."""
    b, heads, length, width = query_shape
    return 2 * b * heads * length * key_shape[2] * (3 * width + 2 * value_shape[-1])


_ATTENTION = ("_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention",
              "_scaled_dot_product_cudnn_attention")  # fmt: skip


@register_flop_formula(_named(*_ATTENTION))
def sdpa_flop(query_shape, key_shape, value_shape, *args, out_shape=None, **kwargs):
    """Attention, causal or not."""
    return sdpa_flop_count(query_shape, key_shape, value_shape)


@register_flop_formula(_named(*(f"{name}_backward" for name in _ATTENTION)))
def sdpa_backward_flop(grad_out_shape, query_shape, key_shape, value_shape, *args, out_shape=None, **kwargs):
    """The derivative of attention."""
    return sdpa_backward_flop_count(grad_out_shape, query_shape, key_shape, value_shape)
