"""grad-cam: class activation maps of a small convolutional network by several methods."""

import numpy as np
import torch
from pytorch_grad_cam import EigenCAM, GradCAM, GradCAMPlusPlus, HiResCAM, LayerCAM, ScoreCAM, XGradCAM
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(8, 8, 3, stride=2),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 4),
).eval()
x = torch.randn(2, 3, 16, 16)
for method in (GradCAM, GradCAMPlusPlus, XGradCAM, HiResCAM, LayerCAM, EigenCAM, ScoreCAM):
    with method(model=model, target_layers=[model[2]]) as cam:
        maps = cam(input_tensor=x, targets=[ClassifierOutputTarget(1), ClassifierOutputTarget(2)])
    print(method.__name__, maps.shape, f"{float(np.abs(maps).sum()):.4f} {float(maps.max()):.4f}")
