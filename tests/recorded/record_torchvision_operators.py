"""Records what the operators of torchvision's library return: a Python with torch and a torchvision whose library loads.

The gradient of ps_roi_pool is left out: torchvision's reaches one row and column further than its forward reads.
"""

import json
from pathlib import Path

import torch
import torchvision  # noqa: F401

TARGET = Path(__file__).with_name("torchvision_operators.json")


def wave(*shape, k=1.0):
    return (torch.arange(float(torch.Size(shape).numel())) * 0.7 * k).sin().reshape(shape)


def sums(t):
    t = t.detach().double()
    return [round(t.sum().item(), 4), round((t * wave(*t.shape, k=0.3)).sum().item(), 4)]


def with_gradients(out, *inputs):
    y = out[0] if isinstance(out, tuple) else out
    gradients = torch.autograd.grad((y * wave(*y.shape, k=0.9)).sum(), inputs)
    return sums(y) + [value for gradient in gradients for value in sums(gradient)]


def main():
    ops = torch.ops.torchvision
    xy = (wave(24, 2, k=1.3) + 1) * 12
    boxes = torch.cat([xy, xy + (wave(24, 2, k=2.1) + 1.2) * 6], 1)
    scores = wave(24, k=3.7)
    rois = torch.tensor([[0, -2, 1, 9, 14.5], [1, 3, 2.5, 20, 9], [1, 5, 5, 5.5, 6], [0, 12, 8, 30, 22]])
    x = wave(2, 12, 16, 20).requires_grad_()
    found = {"nms": [ops.nms(boxes, scores, threshold).tolist() for threshold in (0.1, 0.4, 0.7)]}
    for samples in (-1, 2):
        for aligned in (False, True):
            y = ops.roi_align(x, rois, 0.8, 3, 2, samples, aligned)
            found[f"roi_align {samples} {aligned}"] = with_gradients(y, x)
        found[f"ps_roi_align {samples}"] = with_gradients(ops.ps_roi_align(x, rois, 0.8, 3, 2, samples), x)
    found["roi_pool"] = with_gradients(ops.roi_pool(x, rois, 0.8, 3, 2), x)
    found["ps_roi_pool"] = sums(ops.ps_roi_pool(x, rois, 0.8, 3, 2)[0])
    weight, bias = wave(4, 6, 3, 3, k=1.7).requires_grad_(), wave(4).requires_grad_()
    offset = (wave(2, 36, 8, 10, k=5.3) * 3).requires_grad_()
    mask = wave(2, 18, 8, 10, k=0.77).requires_grad_()
    y = ops.deform_conv2d(x, weight, offset, mask, bias, 2, 2, 1, 1, 1, 1, 2, 2, True)
    found["deform_conv2d"] = with_gradients(y, x, weight, offset, mask, bias)
    first = torch.tensor([[5, 5, 4, 2, 30.0], [8, 6, 3, 3, 0], [5, 5, 4, 2, 30]])
    second = torch.tensor([[5.5, 5, 4, 2, 45.0], [8, 7, 3, 2, 90]])
    found["box_iou_rotated"] = [[round(v, 4) for v in row] for row in ops.box_iou_rotated(first, second).tolist()]
    return found


if __name__ == "__main__":
    TARGET.write_text(json.dumps(main()))
