"""kornia: filters, colours, geometry, augmentation and losses, with gradients."""

import kornia
import kornia.augmentation as augment
import torch

torch.manual_seed(0)
x = torch.rand(2, 3, 24, 32, requires_grad=True)
print("blur", kornia.filters.gaussian_blur2d(x, (5, 5), (1.2, 1.2)).sum().item())
print("sobel", kornia.filters.sobel(x).sum().item())
print("canny", kornia.filters.canny(x)[0].sum().item())
print("colours", kornia.color.rgb_to_hsv(x).sum().item(), kornia.color.rgb_to_lab(x).sum().item())
print("median", kornia.filters.median_blur(x, (3, 3)).sum().item())
angle = torch.tensor([10.0, -20.0])
print("rotate", kornia.geometry.rotate(x, angle).sum().item())
points = torch.tensor([[[0.0, 0], [31, 0], [31, 23], [0, 23]]]).repeat(2, 1, 1)
matrix = kornia.geometry.get_perspective_transform(points, points + torch.tensor([1.0, 2.0]))
warped = kornia.geometry.warp_perspective(x, matrix, (24, 32))
warped.sum().backward()
print("warp", warped.sum().item(), x.grad.sum().item())
torch.manual_seed(1)
pipeline = augment.AugmentationSequential(
    augment.RandomHorizontalFlip(p=0.5),
    augment.RandomAffine(15.0, p=1.0),
    augment.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0),
    data_keys=["input"],
)
print("augmented", pipeline(x.detach()).sum().item())
print("ssim", kornia.losses.ssim_loss(x, x.flip(3), 5).item(), kornia.losses.total_variation(x.detach()).sum().item())
print("corners", kornia.feature.harris_response(x[:, :1]).sum().item())
print(
    "quaternion",
    kornia.geometry.conversions.axis_angle_to_rotation_matrix(torch.tensor([[0.1, 0.2, 0.3]])).sum().item(),
)
print("morphology", kornia.morphology.dilation(x, torch.ones(3, 3)).sum().item())
