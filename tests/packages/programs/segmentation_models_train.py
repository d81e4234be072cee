"""segmentation_models_pytorch: decoders on a small encoder train with its losses."""

import segmentation_models_pytorch as smp
import torch

# In double precision: two small pictures leave batch norms few values, and float32's last digits grow step by step.
x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(3)).double()
mask = (x[:, :1] > 0.3).double()
for kind in ("Unet", "FPN", "DeepLabV3Plus", "PSPNet"):
    torch.manual_seed(0)
    model = getattr(smp, kind)(encoder_name="resnet18", encoder_weights=None, classes=1).double()
    losses = smp.losses.DiceLoss("binary"), smp.losses.FocalLoss("binary")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        out = model(x)
        loss = sum(measure(out, mask) for measure in losses)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(kind, tuple(out.shape), loss.item())
counts = smp.metrics.get_stats((out.sigmoid() > 0.5).long(), mask.long(), mode="binary")
print("iou", smp.metrics.iou_score(*counts, reduction="micro").item())
