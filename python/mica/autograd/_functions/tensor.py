"""Changes of a tensor's type and shape, as functions."""

import math
import warnings

from mica.autograd.function import Function

__all__ = ["Resize", "Type"]


class Type(Function):
    """The tensor as one of another type."""

    @staticmethod
    def forward(ctx, i, dest_type):
        warnings.warn(
            "`torch.autograd._functions.Type` is deprecated as of PyTorch 2.1, please use "
            "`torch.tensor.to(dtype=dtype)` instead.",
            FutureWarning,
            stacklevel=2,
        )
        ctx.like = i.dtype, i.device
        return i.type(dest_type)

    @staticmethod
    def backward(ctx, grad_output):
        dtype, device = ctx.like
        return grad_output.to(device=device, dtype=dtype), None


class Resize(Function):
    """The tensor's elements in another shape, which has as many."""

    @staticmethod
    def forward(ctx, tensor, sizes):
        if tensor.numel() != math.prod(sizes):
            raise RuntimeError(
                f"requested resize to {'x'.join(map(str, sizes))} ({math.prod(sizes)} elements in total), but the given "
                f"tensor has a size of {'x'.join(map(str, tensor.size()))} ({tensor.numel()} elements). autograd's resize "
                "can only change the shape of a given tensor, while preserving the number of elements. "
            )
        ctx.input_sizes = tensor.size()
        return tensor.contiguous().clone().view(*sizes)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.contiguous().view(ctx.input_sizes), None
