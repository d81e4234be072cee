"""captum: attributions of a small network by gradients, by occlusion and by layers."""

import numpy
import torch
from captum.attr import (
    DeepLift,
    FeatureAblation,
    GradientShap,
    GuidedBackprop,
    InputXGradient,
    IntegratedGradients,
    LayerConductance,
    LayerGradCam,
    Occlusion,
    Saliency,
)

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Flatten(),
    torch.nn.Linear(64, 3),
).eval()
x, base = torch.randn(2, 1, 8, 8), torch.zeros(2, 1, 8, 8)
found, delta = IntegratedGradients(model).attribute(x, base, target=1, return_convergence_delta=True, n_steps=20)
print("integrated", found.sum().item(), delta.abs().max().item() < 0.1)
print("saliency", Saliency(model).attribute(x, target=0).sum().item())
print("input times gradient", InputXGradient(model).attribute(x, target=2).sum().item())
print("deeplift", DeepLift(model).attribute(x, base, target=1).sum().item())
print("guided", GuidedBackprop(model).attribute(x, target=1).sum().item())
print("grad cam", LayerGradCam(model, model[0]).attribute(x, target=1).sum().item())
print("conductance", LayerConductance(model, model[0]).attribute(x, target=1, n_steps=10).sum().item())
print(
    "occlusion",
    Occlusion(model).attribute(x, target=1, sliding_window_shapes=(1, 4, 4), strides=(1, 4, 4)).sum().item(),
)
print("ablation", FeatureAblation(model).attribute(x, target=1).sum().item())
torch.manual_seed(1)
numpy.random.seed(0)
print("shap", GradientShap(model).attribute(x, base, target=1, n_samples=4).sum().item())
