"""Regions of feature maps by bilinear interpolation: roi_align and its position-sensitive form.

The mean of the samples of a cell factors into rows and columns: with the weights of the rows (cells x height) and of the
columns (cells x width), a region is rows @ features @ columns'. Only the part of the map that a region touches is read.
"""

import math

import mica
from mica.autograd import Function


def check(input, rois, channels_per_cell=1):
    if input.dim() != 4:
        raise RuntimeError(f"Expected 4D tensor for input, got {input.dim()}D")
    if rois.dim() != 2 or rois.size(1) != 5:
        raise RuntimeError("rois must have shape as Tensor[K, 5]")
    if input.dtype != rois.dtype:
        raise RuntimeError(
            f"Expected tensor for input to have the same type as tensor for rois; but type {input.dtype} does not equal {rois.dtype}"
        )
    if input.size(1) % channels_per_cell:
        raise RuntimeError("input channels must be a multiple of pooling height * pooling width")


def _weights(start, length, cells, samples, size):
    """First row that is touched, and the weight of every touched row in every cell (float64)."""
    at = (mica.arange(cells * samples, dtype=mica.float64) + 0.5) * (length / (cells * samples)) + start
    outside = (at < -1.0) | (at > size)
    at = at.clamp(0, size - 1)
    low = at.floor().long()
    high = (low + 1).clamp(max=size - 1)
    part = at - low
    first, last = int(low.min()), int(high.max())
    weight = mica.zeros(cells * samples, last - first + 1, dtype=mica.float64)
    weight.scatter_add_(1, (low - first)[:, None], (1 - part)[:, None])
    weight.scatter_add_(1, (high - first)[:, None], part[:, None])
    weight[outside] = 0
    return first, weight.view(cells, samples, -1).mean(1)


def _region(roi, scale, height, width, cells_y, cells_x, samples, aligned, smallest):
    """The rows and columns of the map that one region touches, and their weights."""
    offset = 0.5 if aligned else 0.0
    x1, y1, x2, y2 = (value * scale - offset for value in roi)
    length_x, length_y = x2 - x1, y2 - y1
    if not aligned:
        length_x, length_y = max(length_x, smallest), max(length_y, smallest)
    samples_y = samples if samples > 0 else max(math.ceil(length_y / cells_y), 0)
    samples_x = samples if samples > 0 else max(math.ceil(length_x / cells_x), 0)
    if not samples_y or not samples_x:
        return None
    top, rows = _weights(y1, length_y, cells_y, samples_y, height)
    left, columns = _weights(x1, length_x, cells_x, samples_x, width)
    return slice(top, top + rows.size(1)), slice(left, left + columns.size(1)), rows, columns


def _regions(rois, like, *how):
    # Places are computed from float32 values, as torchvision's kernel reads them.
    for k, (batch, *roi) in enumerate(rois.detach().double().tolist()):
        found = _region(roi, *how)
        if found is not None:
            rows, columns, weight_y, weight_x = found
            yield k, int(batch), rows, columns, weight_y.to(like), weight_x.to(like)


def _compute_dtype(dtype):
    return mica.float32 if dtype in (mica.float16, mica.bfloat16) else dtype


class RegionAlign(Function):
    """torchvision::roi_align."""

    @staticmethod
    def forward(ctx, input, rois, scale, cells_y, cells_x, samples, aligned):
        check(input, rois)
        ctx.rois, ctx.shape = rois.detach(), input.shape
        ctx.how = (scale, *input.shape[2:], cells_y, cells_x, samples, aligned, 1.0)
        features = input.to(_compute_dtype(input.dtype))
        result = features.new_zeros((len(rois), input.size(1), cells_y, cells_x))
        if input.is_meta:
            return result.to(input.dtype)
        for k, batch, rows, columns, weight_y, weight_x in _regions(rois, features, *ctx.how):
            result[k] = weight_y @ (features[batch, :, rows, columns] @ weight_x.T)
        return result.to(input.dtype)

    @staticmethod
    @mica.autograd.function.once_differentiable
    def backward(ctx, grad):
        gradient = grad.to(_compute_dtype(grad.dtype))
        made = gradient.new_zeros(ctx.shape)
        for k, batch, rows, columns, weight_y, weight_x in _regions(ctx.rois, gradient, *ctx.how):
            made[batch, :, rows, columns] += weight_y.T @ (gradient[k] @ weight_x)
        return (made.to(grad.dtype), *(None,) * 6)


class PositionAlign(Function):
    """torchvision::ps_roi_align: each cell reads channels of its own."""

    @staticmethod
    def forward(ctx, input, rois, scale, cells_y, cells_x, samples):
        check(input, rois, cells_y * cells_x)
        ctx.rois, ctx.shape = rois.detach(), input.shape
        ctx.how = (scale, *input.shape[2:], cells_y, cells_x, samples, True, 0.0)
        features = input.to(_compute_dtype(input.dtype))
        channels = input.size(1) // (cells_y * cells_x)
        result = features.new_zeros((len(rois), channels, cells_y, cells_x))
        mapping = mica.arange(input.size(1), dtype=mica.int32, device=input.device)
        mapping = mapping.view(1, channels, cells_y, cells_x).expand(len(rois), -1, -1, -1).contiguous()
        ctx.mark_non_differentiable(mapping)
        for k, batch, rows, columns, weight_y, weight_x in _regions(rois, features, *ctx.how):
            part = features[batch, :, rows, columns].unflatten(0, (channels, cells_y, cells_x))
            result[k] = mica.einsum("cijyx,iy,jx->cij", part, weight_y, weight_x)
        return result.to(input.dtype), mapping

    @staticmethod
    @mica.autograd.function.once_differentiable
    def backward(ctx, grad, _):
        gradient = grad.to(_compute_dtype(grad.dtype))
        made = gradient.new_zeros(ctx.shape)
        for k, batch, rows, columns, weight_y, weight_x in _regions(ctx.rois, gradient, *ctx.how):
            part = mica.einsum("cij,iy,jx->cijyx", gradient[k], weight_y, weight_x)
            made[batch, :, rows, columns] += part.flatten(0, 2)
        return (made.to(grad.dtype), *(None,) * 5)


def quantized_roi_align(input, rois, input_scale, input_zero_point, rois_scale, rois_zero_point, *how):
    raise NotImplementedError("torchvision::qroi_align is not in Mica: dequantize the features and call roi_align")
