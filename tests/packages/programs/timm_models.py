"""timm: models with random weights train and extract features; its optimizers, schedules and augmentations."""

import timm
import timm.optim
import timm.scheduler
import torch
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.utils import ModelEmaV3

torch.manual_seed(0)
x, y = torch.randn(4, 3, 64, 64), torch.tensor([1, 0, 3, 2])
for name in ("resnet18", "efficientnet_b0", "convnext_atto", "mobilenetv3_small_050", "regnetx_002"):
    torch.manual_seed(1)
    model = timm.create_model(name, num_classes=4)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.01)
    model.train()
    for _ in range(2):
        loss = LabelSmoothingCrossEntropy(0.1)(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(name, "loss", loss.item())
for name in ("vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"):
    torch.manual_seed(1)
    model = timm.create_model(name, num_classes=4, img_size=64, **({"window_size": 4} if "swin" in name else {})).eval()
    with torch.no_grad():
        print(name, model(x).sum().item(), model.forward_features(x).shape)
features = timm.create_model("resnet18", features_only=True, out_indices=(1, 3)).eval()
print("features", [tuple(each.shape) for each in features(x)], features.feature_info.channels())
torch.manual_seed(2)
model = timm.create_model("resnet18", num_classes=4)
for opt in ("lamb", "sgd", "adan", "lion", "nadamw"):
    optimizer = timm.optim.create_optimizer_v2(model, opt=opt, lr=1e-3)
    SoftTargetCrossEntropy()(model(x), torch.nn.functional.one_hot(y, 4).float()).backward()
    optimizer.step()
    optimizer.zero_grad()
    print(opt, sum(p.detach().double().sum() for p in model.parameters()).item())
ema = ModelEmaV3(model, decay=0.9)
ema.update(model)
scheduler = timm.scheduler.CosineLRScheduler(optimizer, t_initial=10, warmup_t=2, warmup_lr_init=1e-5)
for epoch in range(4):
    scheduler.step(epoch)
    print("lr", optimizer.param_groups[0]["lr"])
