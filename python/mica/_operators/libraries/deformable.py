"""Deformable convolution: samples at places of their own, then one product with the weights."""

import mica


def _sample(features, y, x):
    """Bilinear values of features (n, c, h, w) at places (n, p), zero outside; differentiable by all three."""
    height, width = features.shape[2:]
    flat = features.flatten(2)
    low_y, low_x = y.detach().floor(), x.detach().floor()
    total = None
    inside = (y.detach() > -1) & (y.detach() < height) & (x.detach() > -1) & (x.detach() < width)
    for step_y in (0, 1):
        row = low_y + step_y
        weight_y = y - low_y if step_y else 1 - (y - low_y)
        for step_x in (0, 1):
            column = low_x + step_x
            weight_x = x - low_x if step_x else 1 - (x - low_x)
            there = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long()
            values = flat.gather(2, place[:, None].expand(-1, flat.size(1), -1))
            part = values * mica.where(there, weight_y * weight_x, 0)[:, None]
            total = part if total is None else total + part
    return total


def deform_conv2d(
    input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups,
    use_mask,
):  # fmt: skip
    """torchvision::deform_conv2d."""
    batch, channels, height, width = input.shape
    out_channels, _, kernel_h, kernel_w = weight.shape
    kernel = kernel_h * kernel_w
    out_h = (height + 2 * pad_h - (dilation_h * (kernel_h - 1) + 1)) // stride_h + 1
    out_w = (width + 2 * pad_w - (dilation_w * (kernel_w - 1) + 1)) // stride_w + 1
    if weight.size(1) * groups != channels:
        raise RuntimeError(f"weight has {weight.size(1)} channels in {groups} groups, the input has {channels}")
    if offset.size(1) != offset_groups * 2 * kernel:
        raise RuntimeError(
            f"offset.shape[1] is not valid: got: {offset.size(1)} expected: {offset_groups * 2 * kernel}"
        )
    if use_mask and mask.size(1) != offset_groups * kernel:
        raise RuntimeError(f"mask.shape[1] is not valid: got: {mask.size(1)} expected: {offset_groups * kernel}")
    if offset.size(0) != batch or offset.shape[2:] != (out_h, out_w):
        raise RuntimeError(
            f"offset output dims: ({offset.size(2)}, {offset.size(3)}) - computed output dims: ({out_h}, {out_w})"
        )

    def grid(kernel_size, dilation, stride, pad, count):
        taps = mica.arange(kernel_size, device=input.device) * dilation
        return taps[:, None] + mica.arange(count, device=input.device) * stride - pad

    rows = grid(kernel_h, dilation_h, stride_h, pad_h, out_h).view(kernel_h, 1, out_h, 1)
    columns = grid(kernel_w, dilation_w, stride_w, pad_w, out_w).view(1, kernel_w, 1, out_w)
    moves = offset.view(batch * offset_groups, kernel_h, kernel_w, 2, out_h, out_w)
    y = (moves[:, :, :, 0] + rows).flatten(1)
    x = (moves[:, :, :, 1] + columns).flatten(1)
    features = input.reshape(batch * offset_groups, channels // offset_groups, height, width)
    samples = _sample(features, y, x)
    if use_mask:
        samples = samples * mask.reshape(batch * offset_groups, 1, -1)
    samples = samples.view(batch, groups, channels // groups * kernel, out_h * out_w)
    weights = weight.view(groups, out_channels // groups, -1)
    return (weights @ samples).view(batch, out_channels, out_h, out_w) + bias.view(-1, 1, 1)
