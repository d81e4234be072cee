"""Operators that are the gradients of others, by torch's names. Each computes the derivative of the other operator."""

import mica
from mica import _C
from mica.functional import _overridable

_REDUCTIONS = ("none", "mean", "sum")


def _gradient(function, grad_output, input):
    with mica.enable_grad():
        input = input.detach().requires_grad_()
        output = function(input)
    # In a world, where sizes that are open are numbers, one of the two may show them as open.
    made, given = _C.TensorBase.size(output), _C.TensorBase.size(grad_output)
    if made != given:
        raise RuntimeError(f"the gradient of an output of {tuple(made)} must have its shape, but has {tuple(given)}")
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
    from mica._operators.resizing import resized

    input = grad_output.new_zeros(list(input_size))
    return _gradient(
        lambda x: resized(x, list(output_size), "nearest", None, False, (scales_h, scales_w)), grad_output, input
    )


# ---- pools


def _adaptive_average(name):
    @_overridable
    def backward(grad_output, input):
        """The gradient of averages over windows that share the input out."""
        spatial = int(name[-2])
        if grad_output.dim() != input.dim() or input.dim() not in (spatial + 1, spatial + 2):
            raise RuntimeError(
                f"{name}_backward(): Expected dimensions {spatial + 1} or {spatial + 2} of input and grad_output, but got "
                f"{input.dim()} and {grad_output.dim()}"
            )
        pool = getattr(mica.nn.functional, name)
        return _gradient(lambda x: pool(x, tuple(grad_output.shape[-spatial:])), grad_output, input)

    backward.__name__ = backward.__qualname__ = f"_{name}_backward"
    return backward


def to_chosen_places(grad_output, input, indices, spatial):
    """Each element of the gradient goes to the place of a plane that its index names."""
    result = mica.zeros_like(input, memory_format=mica.contiguous_format).flatten(-spatial)
    return result.scatter_add(-1, indices.flatten(-spatial), grad_output.flatten(-spatial)).reshape(input.shape)


def _adaptive_maximum(name):
    @_overridable
    def backward(grad_output, input, indices):
        """The gradient of the largest elements of windows that share the input out."""
        spatial = int(name[-2])
        for what, x in (("input", input), ("grad_output", grad_output), ("indices", indices)):
            if x.dim() not in (spatial + 1, spatial + 2) or x.dim() != grad_output.dim():
                raise RuntimeError(
                    f"{name}_backward(): expected dimensions {spatial + 1} or {spatial + 2}, the same of all, but {what} has "
                    f"{x.dim()}"
                )
        if grad_output.shape != indices.shape or grad_output.shape[:-spatial] != input.shape[:-spatial]:
            raise RuntimeError(
                f"{name}_backward(): expected sizes of grad_output and indices to be the same, and those of input but for the "
                f"last {spatial}, but got {tuple(grad_output.shape)}, {tuple(indices.shape)} and {tuple(input.shape)}"
            )
        return to_chosen_places(grad_output, input, indices, spatial)

    backward.__name__ = backward.__qualname__ = f"{name}_backward"
    return backward


_adaptive_avg_pool2d_backward, _adaptive_avg_pool3d_backward = map(
    _adaptive_average, ("adaptive_avg_pool2d", "adaptive_avg_pool3d")
)
adaptive_max_pool2d_backward, adaptive_max_pool3d_backward = map(
    _adaptive_maximum, ("adaptive_max_pool2d", "adaptive_max_pool3d")
)


@_overridable
def fractional_max_pool2d_backward(grad_output, input, kernel_size, output_size, indices):
    """The gradient of the largest elements of windows at random places."""
    wanted = (*input.shape[:-2], *output_size)
    if tuple(grad_output.shape) != wanted or tuple(indices.shape) != wanted:
        raise RuntimeError(
            f"fractional_max_pool2d_backward(): gradOutput sizes unexpected: it and indices must be {wanted}, but are "
            f"{tuple(grad_output.shape)} and {tuple(indices.shape)}"
        )
    return to_chosen_places(grad_output, input, indices, 2)


@_overridable
def unfold_backward(grad_in, input_sizes, dim, size, step):
    """The gradient of Tensor.unfold."""
    if step <= 0:
        raise ValueError(f"step is {step} but must be > 0")
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if not input_sizes:
        return grad_in.sum().reshape(())
    dim %= len(input_sizes)
    places = mica.arange(input_sizes[dim], device=grad_in.device).unfold(0, size, step).reshape(-1)
    windows = grad_in.movedim(-1, dim + 1).flatten(dim, dim + 1)
    return grad_in.new_zeros(list(input_sizes)).index_add(dim, places, windows)
