"""Operators that are the gradients of others, by torch's names: what the derivative of the other gives."""

import mica
from mica.functional import _overridable

_REDUCTIONS = ("none", "mean", "sum")


def _gradient(function, grad_output, input):
    with mica.enable_grad():
        input = input.detach().requires_grad_()
        output = function(input)
    if output.shape != grad_output.shape:
        raise RuntimeError(
            f"the gradient of an output of {tuple(output.shape)} must have its shape, but has {tuple(grad_output.shape)}"
        )
    return mica.autograd.grad(output, input, grad_output)[0]


def _pool_backward(name):
    @_overridable
    def backward(grad_output, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
        """The gradient of an average over windows."""
        pool = getattr(mica.nn.functional, name)
        return _gradient(
            lambda x: pool(x, kernel_size, stride or None, padding, ceil_mode, count_include_pad, divisor_override),
            grad_output,
            input,
        )

    backward.__name__ = backward.__qualname__ = f"{name}_backward"
    return backward


avg_pool2d_backward, avg_pool3d_backward = map(_pool_backward, ("avg_pool2d", "avg_pool3d"))


@_overridable
def nll_loss_backward(grad_output, input, target, weight, reduction, ignore_index, total_weight):
    """The gradient of nll_loss."""
    if input.dim() == 1:  # one row
        if target.dim() == 1 and target.shape != input.shape:
            raise RuntimeError(f"size mismatch (got input: {list(input.shape)}, target: {list(target.shape)})")
        input, target = input[None], target.reshape(-1)[:1]
        grad_output = grad_output.reshape(1) if reduction == 0 else grad_output
        return nll_loss_backward(grad_output, input, target, weight, reduction, ignore_index, total_weight)[0]
    how = _REDUCTIONS[reduction]
    return _gradient(
        lambda x: mica.nn.functional.nll_loss(x, target, weight, ignore_index=ignore_index, reduction=how),
        grad_output,
        input,
    )


def _pad_backward(name, mode):
    @_overridable
    def backward(grad_output, input, padding):
        """The gradient of a border that repeats what is within."""
        return _gradient(lambda x: mica.nn.functional.pad(x, list(padding), mode), grad_output, input)

    backward.__name__ = backward.__qualname__ = name
    return backward


reflection_pad1d_backward, reflection_pad2d_backward, reflection_pad3d_backward = (
    _pad_backward(f"reflection_pad{dims}d_backward", "reflect") for dims in (1, 2, 3)
)
replication_pad1d_backward, replication_pad2d_backward, replication_pad3d_backward = (
    _pad_backward(f"replication_pad{dims}d_backward", "replicate") for dims in (1, 2, 3)
)


@_overridable
def upsample_nearest2d_backward(grad_output, output_size, input_size, scales_h=None, scales_w=None):
    """The gradient of upsample_nearest2d."""
    from mica._operators.aten_functions import resized

    input = grad_output.new_zeros(list(input_size))
    return _gradient(
        lambda x: resized(x, list(output_size), "nearest", None, False, (scales_h, scales_w)), grad_output, input
    )
