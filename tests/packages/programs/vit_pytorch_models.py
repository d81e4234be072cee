"""vit-pytorch: vision transformers of several kinds train."""

import torch
from vit_pytorch import SimpleViT, ViT
from vit_pytorch.cait import CaiT
from vit_pytorch.cct import CCT

torch.manual_seed(0)
x = torch.randn(2, 3, 32, 32)
models = {
    "vit": ViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64),
    "simple": SimpleViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64),
    "cait": CaiT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, cls_depth=1, heads=2, mlp_dim=64),
    "cct": CCT(img_size=(32, 32), embedding_dim=32, n_conv_layers=1, kernel_size=3, stride=2, padding=1, pooling_kernel_size=3,
               pooling_stride=2, pooling_padding=1, num_layers=1, num_heads=2, mlp_ratio=2.0, num_classes=5),
}  # fmt: skip
for name, model in models.items():
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 3]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(name, loss.item(), sum(p.numel() for p in model.parameters()))
