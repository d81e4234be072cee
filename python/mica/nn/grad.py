"""The gradients of convolutions by their inputs and weights, as functions."""

import mica
from mica import _C


def _gradient(dims, by, other, input, weight, grad_output, *numbers):
    """The gradient of a convolution by one operand. The convolution is linear in it, so that zeros can stand for it."""
    recorded = mica.is_grad_enabled() and (other.requires_grad or grad_output.requires_grad)
    with mica.enable_grad():
        output = getattr(_C, f"conv{dims}d")(input, weight, None, *numbers)
    return mica.autograd.grad(output, by, grad_output, create_graph=recorded)[0]


def _functions(dims):
    def by_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
        input = grad_output.new_zeros(input_size).requires_grad_()
        return _gradient(dims, input, weight, input, weight, grad_output, stride, padding, dilation, groups)

    def by_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
        weight = grad_output.new_zeros(weight_size).requires_grad_()
        return _gradient(dims, weight, input, input, weight, grad_output, stride, padding, dilation, groups)

    for function, part in ((by_input, "input"), (by_weight, "weight")):
        function.__name__ = function.__qualname__ = f"conv{dims}d_{part}"
        function.__doc__ = f"The gradient of a conv{dims}d by its {part}."
    return by_input, by_weight


conv1d_input, conv1d_weight = _functions(1)
conv2d_input, conv2d_weight = _functions(2)
conv3d_input, conv3d_weight = _functions(3)
