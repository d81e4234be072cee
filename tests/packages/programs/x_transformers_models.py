"""x_transformers: a decoder and an encoder with the package's many options."""

import torch
from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper, ViTransformerWrapper

torch.manual_seed(0)
for options in (
    {},
    {"rotary_pos_emb": True, "ff_glu": True, "use_rmsnorm": True},
    {"alibi_pos_bias": True, "attn_kv_heads": 2},
    {"attn_qk_norm": True},
):
    torch.manual_seed(1)
    model = AutoregressiveWrapper(
        TransformerWrapper(
            num_tokens=50, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **options)
        )
    )
    x = torch.randint(0, 50, (2, 20))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        loss = model(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(sorted(options), "loss", loss.item())
    print("generated", model.generate(x[:, :4], 6, temperature=0.0, cache_kv=True).tolist())
vit = ViTransformerWrapper(
    image_size=32, patch_size=8, num_classes=5, attn_layers=Encoder(dim=32, depth=2, heads=4, attn_dim_head=8)
).eval()
print("vit", vit(torch.randn(2, 3, 32, 32)).sum().item())
