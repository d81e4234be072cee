"""open_clip: a small CLIP of its own configuration encodes and trains."""

import torch
from open_clip.loss import ClipLoss, SigLipLoss
from open_clip.model import CLIP

torch.manual_seed(0)
model = CLIP(
    embed_dim=16,
    vision_cfg={"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
    text_cfg={"context_length": 10, "vocab_size": 40, "width": 32, "heads": 2, "layers": 2},
)
images, words = torch.randn(4, 3, 32, 32), torch.randint(1, 40, (4, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    a, b, scale = model(images, words)[:3]
    loss = ClipLoss()(a, b, scale)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, loss.item(), scale.item())
print("siglip", SigLipLoss()(a, b, scale, torch.tensor(-1.0)).item())
model.eval()
print("similar", (model.encode_image(images, normalize=True) @ model.encode_text(words, normalize=True).T).sum().item())
model.lock_image_tower()
print("locked", sum(p.requires_grad for p in model.parameters()))
