"""Nodes that modules put into the graph."""

import mica
from mica.autograd.function import Function


class BackwardHookFunction(Function):
    """Passes its inputs on, and gives them one node, on which a module hangs its backward hooks."""

    @staticmethod
    def forward(ctx, *args):
        ctx.mark_non_differentiable(*(arg for arg in args if not arg.requires_grad))
        return args

    @staticmethod
    def backward(ctx, *grads):
        return grads


def _per_channel(tensor, like):
    return tensor.view(1, -1, *[1] * (like.dim() - 2))


class SyncBatchNorm(Function):
    """Batch normalisation with the mean and the variance of all processes' batches.

    A process sends its mean, variance and count by channel, and gets the others'. Backward needs two sums by channel over
    all processes.
    """

    @staticmethod
    def forward(self, input, weight, bias, running_mean, running_var, eps, momentum, process_group, world_size):
        from mica.distributed import all_gather

        wide = mica.float64 if input.dtype is mica.float64 else mica.float32
        channels = input.shape[1]
        dims = [0, *range(2, input.dim())]
        count = input.numel() // channels
        mine = mica.zeros(2 * channels + 1, dtype=wide, device=input.device)
        if count:
            values = input.to(wide)
            mine[:channels] = values.mean(dims)
            mine[channels : 2 * channels] = values.var(dims, correction=0)
            mine[-1] = count
        gathered = [mica.empty_like(mine) for _ in range(world_size)]
        all_gather(gathered, mine, group=process_group)
        every = mica.stack(gathered)
        means, variances, counts = every[:, :channels], every[:, channels:-1], every[:, -1:]
        total = counts.sum()
        if count == 0 and total == 0:
            raise ValueError("Expected more than 0 values per channel over all processes")
        mean = (counts * means).sum(0) / total
        variance = (counts * (variances + (means - mean).square())).sum(0) / total
        if running_mean is not None:
            running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
            unbiased = variance * (total / (total - 1).clamp(min=1))
            running_var.mul_(1 - momentum).add_(unbiased.to(running_var.dtype), alpha=momentum)
        inverse = (variance + eps).rsqrt()
        scale = inverse if weight is None else inverse * weight.to(wide)
        result = (input.to(wide) - _per_channel(mean, input)) * _per_channel(scale, input)
        if bias is not None:
            result = result + _per_channel(bias.to(wide), input)
        self.save_for_backward(input, weight, mean, inverse, total)
        self.process_group, self.bias_dtype = process_group, None if bias is None else bias.dtype
        return result.to(input.dtype)

    @staticmethod
    def backward(self, gradient):
        from mica.distributed import all_reduce

        input, weight, mean, inverse, total = self.saved_tensors
        wide = mean.dtype
        dims = [0, *range(2, input.dim())]
        channels = input.shape[1]
        centred = input.to(wide) - _per_channel(mean, input)
        gradient = gradient.to(wide)
        sums = mica.cat([gradient.sum(dims), (gradient * centred).sum(dims)])
        grad_weight = grad_bias = grad_input = None
        if weight is not None and self.needs_input_grad[1]:
            grad_weight = (sums[channels:] * inverse).to(weight.dtype)
        if self.bias_dtype is not None and self.needs_input_grad[2]:
            grad_bias = sums[:channels].to(self.bias_dtype, copy=True)  # the sums change below
        all_reduce(sums, group=self.process_group)
        if self.needs_input_grad[0]:
            of_mean = _per_channel(sums[:channels] / total, input)
            of_variance = _per_channel(sums[channels:] / total * inverse.square(), input)
            scale = inverse if weight is None else inverse * weight.to(wide)
            grad_input = (gradient - of_mean - centred * of_variance) * _per_channel(scale, input)
            grad_input = grad_input.to(input.dtype)
        return grad_input, grad_weight, grad_bias, None, None, None, None, None, None
