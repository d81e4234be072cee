"""Regions of feature maps by whole cells: roi_pool takes the largest value of each, ps_roi_pool the mean."""

import math

import mica
from mica._operators.libraries.region_align import check
from mica.autograd import Function


def _round(value):
    """As C rounds: a half goes away from zero."""
    return math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1)


def _bounds(start, length, cells, size):
    step = length / cells
    for i in range(cells):
        low = min(max(math.floor(i * step) + start, 0), size)
        yield low, min(max(math.ceil((i + 1) * step) + start, 0), size)


class RegionPool(Function):
    """torchvision::roi_pool, with the place of each value in its map."""

    @staticmethod
    def forward(ctx, input, rois, scale, cells_y, cells_x):
        check(input, rois)
        height, width = input.shape[2:]
        shape = (len(rois), input.size(1), cells_y, cells_x)
        result = input.new_zeros(shape)
        places = mica.full(shape, -1, dtype=mica.int32, device=input.device)
        batches = [int(row[0]) for row in rois.tolist()]
        for k, (batch, *corners) in enumerate([] if input.is_meta else rois.detach().double().tolist()):
            x1, y1, x2, y2 = (_round(value * scale) for value in corners)
            columns = list(_bounds(x1, max(x2 - x1 + 1, 1), cells_x, width))
            rows = list(_bounds(y1, max(y2 - y1 + 1, 1), cells_y, height))
            for j, (left, right) in enumerate(columns):
                if left >= right:
                    continue
                across = input[int(batch), :, :, left:right].max(2)
                for i, (top, bottom) in enumerate(rows):
                    if top >= bottom:
                        continue
                    best = across.values[:, top:bottom].max(1)
                    result[k, :, i, j] = best.values
                    row = best.indices + top
                    column = across.indices.gather(1, row[:, None])[:, 0] + left
                    places[k, :, i, j] = (row * width + column).int()
        ctx.places, ctx.batches, ctx.shape = places, batches, input.shape
        ctx.mark_non_differentiable(places)
        return result, places

    @staticmethod
    @mica.autograd.function.once_differentiable
    def backward(ctx, grad, _):
        made = grad.new_zeros(ctx.shape).flatten(2)
        for k, batch in enumerate(ctx.batches):
            place = ctx.places[k].flatten(1).long()
            made[batch].scatter_add_(1, place.clamp(min=0), grad[k].flatten(1) * (place >= 0))
        return made.view(ctx.shape), None, None, None, None


def _cells(rois, scale, cells_y, cells_x, height, width):
    """k, batch, i, j and the bounds of every cell that is not empty."""
    for k, (batch, *corners) in enumerate(rois.detach().double().tolist()):
        x1, y1, x2, y2 = (_round(value * scale) for value in corners)
        # torchvision's kernel never reads the last row and column here.
        rows = list(_bounds(y1, max(y2 - y1, 1), cells_y, height - 1))
        columns = list(_bounds(x1, max(x2 - x1, 1), cells_x, width - 1))
        for i, (top, bottom) in enumerate(rows):
            for j, (left, right) in enumerate(columns):
                if top < bottom and left < right:
                    yield k, int(batch), i, j, slice(top, bottom), slice(left, right)


class PositionPool(Function):
    """torchvision::ps_roi_pool: the mean of each cell, of channels of its own."""

    @staticmethod
    def forward(ctx, input, rois, scale, cells_y, cells_x):
        check(input, rois, cells_y * cells_x)
        channels = input.size(1) // (cells_y * cells_x)
        result = input.new_zeros((len(rois), channels, cells_y, cells_x))
        mapping = mica.arange(input.size(1), dtype=mica.int32, device=input.device)
        mapping = mapping.view(1, channels, cells_y, cells_x).expand(len(rois), -1, -1, -1).contiguous()
        features = input.unflatten(1, (channels, cells_y, cells_x))
        ctx.rois, ctx.shape = rois.detach(), input.shape
        ctx.how = (scale, cells_y, cells_x, *input.shape[2:])
        ctx.mark_non_differentiable(mapping)
        for k, batch, i, j, rows, columns in [] if input.is_meta else _cells(rois, *ctx.how):
            result[k, :, i, j] = features[batch, :, i, j, rows, columns].mean((1, 2))
        return result, mapping

    @staticmethod
    @mica.autograd.function.once_differentiable
    def backward(ctx, grad, _):
        made = grad.new_zeros(ctx.shape)
        parts = made.unflatten(1, grad.shape[1:])
        for k, batch, i, j, rows, columns in _cells(ctx.rois, *ctx.how):
            count = (rows.stop - rows.start) * (columns.stop - columns.start)
            parts[batch, :, i, j, rows, columns] += (grad[k, :, i, j] / count)[:, None, None]
        return made, None, None, None, None
