"""reformer-pytorch: attention by hashing, reversible layers; egnn-pytorch and x-clip train beside it."""

import torch
from egnn_pytorch import EGNN, EGNN_Network
from reformer_pytorch import LSHSelfAttention, ReformerLM
from torch import nn
from x_clip import CLIP

torch.manual_seed(0)
model = ReformerLM(
    num_tokens=50,
    dim=32,
    depth=2,
    heads=2,
    max_seq_len=64,
    bucket_size=16,
    n_hashes=2,
    causal=True,
    lsh_dropout=0.0,
    ff_chunks=2,
)
tokens = torch.randint(0, 50, (2, 64))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens).transpose(1, 2), tokens)
    loss.backward()
    optimizer.step()
    print("reformer", f"{loss.item():.4f}")
attention = LSHSelfAttention(dim=32, heads=2, bucket_size=8, n_hashes=2, causal=False)
print("lsh", f"{attention(torch.randn(1, 32, 32)).abs().sum().item():.3f}")
torch.manual_seed(1)
net = EGNN_Network(
    num_tokens=12, dim=16, depth=2, num_nearest_neighbors=4, norm_coors=True, coor_weights_clamp_value=2.0
)
feats, coors = torch.randint(0, 12, (1, 10)), torch.randn(1, 10, 3)
out, moved = net(feats, coors)
(out.pow(2).mean() + moved.pow(2).mean()).backward()
print(
    "egnn",
    tuple(out.shape),
    f"{out.abs().sum().item():.4f} {moved.abs().sum().item():.4f}",
    f"{sum(p.grad.abs().sum() for p in net.parameters() if p.grad is not None).item():.3f}",
)
layer = EGNN(dim=8, edge_dim=4)
f, c = layer(torch.randn(1, 6, 8), torch.randn(1, 6, 3), torch.randn(1, 6, 6, 4))
print("layer", f"{f.abs().sum().item():.4f} {c.abs().sum().item():.4f}")
torch.manual_seed(2)
clip = CLIP(
    dim_text=32,
    dim_image=32,
    dim_latent=16,
    num_text_tokens=60,
    text_enc_depth=1,
    text_seq_len=16,
    text_heads=2,
    visual_enc_depth=1,
    visual_image_size=32,
    visual_patch_size=16,
    visual_heads=2,
    use_all_token_embeds=True,
    decoupled_contrastive_learning=True,
    extra_latent_projection=True,
    use_visual_ssl=False,
    use_mlm=False,
)
text, images = torch.randint(1, 60, (4, 16)), torch.randn(4, 3, 32, 32)
optimizer = torch.optim.SGD(clip.parameters(), 0.01)
for _ in range(3):
    optimizer.zero_grad()
    loss = clip(text, images, freeze_image_encoder=False, return_loss=True)
    loss.backward()
    optimizer.step()
    print("clip", f"{loss.item():.4f}")
