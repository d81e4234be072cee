"""torchvision 0.28: detection models train and detect; operators on boxes and regions."""

import torch
from torchvision import ops
from torchvision.models.detection import (
    FasterRCNN,
    MaskRCNN,
    ssdlite320_mobilenet_v3_large,
)
from torchvision.models.detection.rpn import AnchorGenerator

torch.manual_seed(0)
images = [torch.rand(3, 64, 80), torch.rand(3, 72, 64)]
targets = [
    {
        "boxes": torch.tensor([[5.0, 6, 30, 40], [20, 10, 60, 50]]),
        "labels": torch.tensor([1, 2]),
        "masks": torch.zeros(2, 64, 80, dtype=torch.uint8),
    },
    {
        "boxes": torch.tensor([[10.0, 8, 40, 60]]),
        "labels": torch.tensor([2]),
        "masks": torch.zeros(1, 72, 64, dtype=torch.uint8),
    },
]
for target in targets:
    for mask, box in zip(target["masks"], target["boxes"].long().tolist(), strict=True):
        mask[box[1] : box[3], box[0] : box[2]] = 1


class Backbone(torch.nn.Sequential):
    out_channels = 16

    def __init__(self):
        super().__init__(
            torch.nn.Conv2d(3, 16, 5, 4, 2), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, 2, 1), torch.nn.ReLU()
        )


anchors = AnchorGenerator(sizes=((16, 32),), aspect_ratios=((0.5, 1.0, 2.0),))
for kind in (FasterRCNN, MaskRCNN):
    torch.manual_seed(1)
    model = kind(
        Backbone(), num_classes=3, rpn_anchor_generator=anchors, min_size=64, max_size=96, box_score_thresh=0.0, box_detections_per_img=5,
        box_roi_pool=ops.MultiScaleRoIAlign(["0"], 7, 2),
        **({"mask_roi_pool": ops.MultiScaleRoIAlign(["0"], 14, 2)} if kind is MaskRCNN else {}),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005)
    for _ in range(2):
        torch.manual_seed(2)
        parts = model(images, targets)
        optimizer.zero_grad()
        sum(parts.values()).backward()
        optimizer.step()
    print(kind.__name__, {name: value.item() for name, value in parts.items()})
    model.eval()
    with torch.no_grad():
        found = model(images)
    print("found", [tuple(one["boxes"].shape) for one in found], [one["scores"].sum().item() for one in found])
torch.manual_seed(3)
model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3).eval()
print("ssd", [tuple(one["boxes"].shape)[1:] for one in model(images[:1])])
xy = torch.rand(60, 2) * 40
boxes, scores = torch.cat([xy, xy + torch.rand(60, 2) * 20], 1), torch.rand(60)
print("nms", ops.nms(boxes, scores, 0.4).tolist(), ops.batched_nms(boxes, scores, torch.arange(60) % 3, 0.3).tolist())
x = torch.randn(2, 12, 16, 20, requires_grad=True)
rois = torch.tensor([[0, -2, 1, 9, 14.5], [1, 3, 2.5, 20, 9], [0, 12, 8, 30, 22]])
for name, out in (
    ("roi_align", ops.roi_align(x, rois, (3, 2), 0.8, -1, True)), ("roi_pool", ops.roi_pool(x, rois, (3, 2), 0.8)),
    ("ps_roi_align", ops.ps_roi_align(x, rois, (3, 2), 0.8, 2)),
):  # fmt: skip
    (gradient,) = torch.autograd.grad(out.pow(2).sum(), x)
    print(name, out.abs().sum().item(), gradient.abs().sum().item())
layer = ops.DeformConv2d(12, 4, 3, padding=1)
out = layer(x, torch.randn(2, 18, 16, 20), torch.rand(2, 9, 16, 20))
out.sum().backward()
print("deformable", out.abs().sum().item(), layer.weight.grad.abs().sum().item())
