"""Operators of backward passes that torch.ops.aten has. Modes see them, and graphs contain them, under these names."""

import mica
from mica._operators.gradients import nll_loss_backward, to_chosen_places
from mica.nn import functional as F


def _gradient(function):
    """The derivative of a function as an operator of the gradient and the input."""

    def backward(grad_output, self, *args, **kwargs):
        return _gradients(lambda given: function(given, *args, **kwargs), (self,), grad_output)[0]

    return backward


def _gradients(function, inputs, grad_output, wanted=None):
    """The derivatives of a function by its inputs; None for one that is not wanted."""
    wanted = [True] * len(inputs) if wanted is None else list(wanted)
    with mica.enable_grad():
        given = [x.detach().requires_grad_() if want else x for x, want in zip(inputs, wanted, strict=True)]
        asked = [x for x, want in zip(given, wanted, strict=True) if want]
        made = iter(mica.autograd.grad(function(*given), asked, grad_output))
    return tuple(next(made) if want else None for want in wanted)


# ---- activations


def op_sigmoid_backward(grad_output, output):
    return grad_output * (output * (1 - output)).conj()


def op_tanh_backward(grad_output, output):
    return grad_output * (1 - output * output).conj()


def op_threshold_backward(grad_output, self, threshold):
    return mica.where(self <= threshold, 0, grad_output)


op_gelu_backward = _gradient(lambda x, approximate="none": F.gelu(x, approximate=approximate))
op_silu_backward = _gradient(F.silu)
op_mish_backward = _gradient(F.mish)
op_hardswish_backward = _gradient(F.hardswish)
op_hardsigmoid_backward = _gradient(F.hardsigmoid)
op_hardtanh_backward = _gradient(F.hardtanh)
op_softplus_backward = _gradient(F.softplus)
op_glu_backward = _gradient(F.glu)


def op_leaky_relu_backward(grad_output, self, negative_slope, self_is_result=False):
    return mica.where(self > 0, grad_output, grad_output * negative_slope)


def op_elu_backward(grad_output, alpha, scale, input_scale, is_result, self_or_result):
    below = self_or_result + alpha * scale if is_result else alpha * scale * (self_or_result * input_scale).exp()
    return mica.where(self_or_result <= 0, grad_output * input_scale * below, grad_output * scale)


def op__prelu_kernel(self, weight):
    return mica.where(self > 0, self, weight * self)


def op__prelu_kernel_backward(grad_output, self, weight):
    return mica.where(self > 0, grad_output, weight * grad_output), mica.where(self > 0, 0, self * grad_output)


def op_log_sigmoid_forward(self):
    return F.logsigmoid(self), (-self.abs()).exp()


def op_log_sigmoid_backward(grad_output, self, buffer):
    return grad_output * (-self).sigmoid()


# ---- softmax and normalisations


def op__softmax_backward_data(grad_output, output, dim, input_dtype):
    product = grad_output * output
    return (product - output * product.sum(dim, keepdim=True)).to(input_dtype)


def op__log_softmax_backward_data(grad_output, output, dim, input_dtype):
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)


def _normalized_gradient(scaled, normal, rstd, dims):
    """The gradient of the input where `normal` is centred and of variance one over `dims`."""
    return rstd * (scaled - scaled.mean(dims, True) - normal * (scaled * normal).mean(dims, True))


def op_native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask):
    count = len(normalized_shape)
    dims, rows = list(range(-count, 0)), list(range(input.dim() - count))
    grad, normal = grad_out.to(rstd.dtype), (input.to(rstd.dtype) - mean) * rstd
    summed = (lambda x: x.sum(rows)) if rows else (lambda x: x)
    kind = grad_out.dtype if weight is None else weight.dtype
    return (
        _normalized_gradient(grad if weight is None else grad * weight, normal, rstd, dims).to(input.dtype)
        if output_mask[0]
        else None,
        summed(grad * normal).to(kind) if output_mask[1] else None,
        summed(grad).to(kind) if output_mask[2] else None,
    )


def op_native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask):
    grouped, split = (N, group, C // group * HxW), (N, C, HxW)
    mean, rstd = mean.reshape(N, group, 1), rstd.reshape(N, group, 1)
    normal = (input.to(rstd.dtype).reshape(grouped) - mean) * rstd
    grad = grad_out.to(rstd.dtype).reshape(split)
    scaled = (grad if weight is None else grad * weight.reshape(1, C, 1)).reshape(grouped)
    kind = grad_out.dtype if weight is None else weight.dtype
    return (
        _normalized_gradient(scaled, normal, rstd, [2]).reshape(input.shape).to(input.dtype)
        if output_mask[0]
        else None,
        (grad * normal.reshape(split)).sum([0, 2]).to(kind) if output_mask[1] else None,
        grad.sum([0, 2]).to(kind) if output_mask[2] else None,
    )


def op_native_batch_norm_backward(
    grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask
):
    dims = [d for d in range(input.dim()) if d != 1]
    per_channel = [1, -1] + [1] * (input.dim() - 2)
    wide = mica.float64 if input.dtype == mica.float64 else mica.float32
    mean, rstd = (save_mean, save_invstd) if train else (running_mean, (running_var.to(wide) + eps).rsqrt())
    mean, rstd = mean.to(wide).reshape(per_channel), rstd.to(wide).reshape(per_channel)
    grad, normal = grad_out.to(wide), (input.to(wide) - mean) * rstd
    scaled = grad if weight is None else grad * weight.to(wide).reshape(per_channel)
    kind = input.dtype if weight is None else weight.dtype
    found = None
    if output_mask[0]:
        found = (_normalized_gradient(scaled, normal, rstd, dims) if train else rstd * scaled).to(input.dtype)
    return (
        found,
        (grad * normal).sum(dims).to(kind) if output_mask[1] else None,
        grad.sum(dims).to(kind) if output_mask[2] else None,
    )


# ---- views


def op_select_backward(grad_output, input_sizes, dim, index):
    return grad_output.new_zeros(list(input_sizes)).select_scatter(grad_output, dim, index)


def op_slice_backward(grad_output, input_sizes, dim, start, end, step):
    return grad_output.new_zeros(list(input_sizes)).slice_scatter(grad_output, dim, start, end, step)


def op_diagonal_backward(grad_output, input_sizes, offset, dim1, dim2):
    return grad_output.new_zeros(list(input_sizes)).diagonal_scatter(grad_output, offset, dim1, dim2)


# ---- losses


def _shared(grad_output, slope, reduction):
    """The gradient of a loss that is a sum, a mean (1) or one number for each element."""
    found = slope * grad_output
    return found / slope.numel() if reduction == 1 else found


def op_mse_loss_backward(grad_output, self, target, reduction):
    return _shared(grad_output, 2 * (self - target), reduction)


def op_smooth_l1_loss_backward(grad_output, self, target, reduction, beta):
    distance = self - target
    slope = mica.where(distance.abs() < beta, distance / beta, distance.sign()) if beta else distance.sign()
    return _shared(grad_output, slope, reduction)


def op_huber_loss_backward(grad_output, self, target, reduction, delta):
    return _shared(grad_output, (self - target).clamp(-delta, delta), reduction)


def op_binary_cross_entropy_backward(grad_output, self, target, weight=None, reduction=1):
    slope = (self - target) / ((1 - self) * self).clamp(min=1e-12)
    return _shared(grad_output, slope if weight is None else slope * weight, reduction)


op_nll_loss2d_backward = nll_loss_backward


def op_nll_loss2d_forward(self, target, weight, reduction, ignore_index):
    return mica.ops.aten.nll_loss_forward.default(self, target, weight, reduction, ignore_index)


# ---- layers


def op_embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq):
    with mica.enable_grad():
        weight = grad_output.new_zeros(num_weights, grad_output.size(-1)).requires_grad_()
        made = F.embedding(indices, weight, None if padding_idx < 0 else padding_idx, None, 2.0, scale_grad_by_freq)
        return mica.autograd.grad(made, weight, grad_output)[0]


def op__cdist_forward(x1, x2, p, compute_mode):
    return mica.cdist(x1, x2, p)


def op_max_pool3d_with_indices_backward(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices):
    return to_chosen_places(grad_output, self, indices, 3)


def of_upsampling(upsample):
    """The derivative of an interpolation."""

    def backward(grad_output, output_size, input_size, *rest, **named):
        return _gradients(
            lambda x: upsample(x, output_size, *rest, **named), (grad_output.new_zeros(list(input_size)),), grad_output
        )[0]

    return None if upsample is None else backward


def _of_grid_sampler(grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask):
    return _gradients(
        lambda x, places: mica.grid_sampler(x, places, interpolation_mode, padding_mode, align_corners),
        (input, grid),
        grad_output,
        output_mask,
    )


op_grid_sampler_2d_backward = op_grid_sampler_3d_backward = _of_grid_sampler


def op__scaled_dot_product_flash_attention_for_cpu_backward(
    grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None
):
    return _gradients(
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=q.size(1) != k.size(1)
        ),
        (query, key, value),
        grad_out,
    )
