"""monai: networks, losses, transforms and sliding windows on volumes."""

import torch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss, TverskyLoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNETR, AttentionUnet, UNet
from monai.transforms import Compose, RandFlip, RandGaussianNoise, Resize, ScaleIntensity

torch.manual_seed(0)
x = torch.randn(1, 1, 32, 32, 32)
target = (x > 0).long()
networks = {
    "unet": UNet(3, 1, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1),
    "attention": AttentionUnet(3, 1, 2, channels=(4, 8, 16), strides=(2, 2)),
    "unetr": UNETR(1, 2, (32, 32, 32), feature_size=4, hidden_size=24, mlp_dim=48, num_heads=2),
}
for name, net in networks.items():
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(2):
        loss = DiceCELoss(to_onehot_y=True, softmax=True)(net(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(name, loss.item())
net = networks["unet"].eval()
with torch.no_grad():
    found = sliding_window_inference(torch.randn(1, 1, 40, 40, 40), (32, 32, 32), 2, net, overlap=0.25, mode="gaussian")
print("windows", tuple(found.shape), found.sum().item())
metric = DiceMetric(include_background=True)
metric((torch.rand(2, 2, 8, 8) > 0.5).float(), (torch.rand(2, 2, 8, 8) > 0.5).float())
print(
    "dice", metric.aggregate().item(), TverskyLoss(sigmoid=True)(torch.randn(1, 1, 8, 8), torch.ones(1, 1, 8, 8)).item()
)
pipeline = Compose(
    [ScaleIntensity(), Resize((16, 16)), RandFlip(prob=0.5, spatial_axis=0), RandGaussianNoise(prob=1.0)]
)
pipeline.set_random_state(0)
made = pipeline(torch.rand(1, 20, 20))
print("transforms", tuple(made.shape), float(made.sum()), type(made).__name__)
