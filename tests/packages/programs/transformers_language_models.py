"""transformers: language models with random weights train, and generate greedily, with beams and by sampling."""

import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MixtralConfig,
    Qwen3Config,
    set_seed,
)
from transformers.utils import logging

logging.set_verbosity_error()
small = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}
configs = {
    "gpt2": GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=96, n_positions=64, bos_token_id=1, eos_token_id=2),
    "llama": LlamaConfig(**small, **heads),
    "qwen3": Qwen3Config(**small, **heads, head_dim=8),
    "mixtral": MixtralConfig(**small, **heads, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True),
    "mamba": MambaConfig(**small, state_size=8),
}
for name, config in configs.items():
    set_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    print(name, "parameters", sum(p.numel() for p in model.parameters()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randint(3, 96, (2, 24))
    model.train()
    for _ in range(3):
        loss = model(x, labels=x).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(name, "loss", loss.item(), "norm", norm.item())
    model.eval()
    prompt = x[:, :6]
    options = {"max_new_tokens": 8, "pad_token_id": 0}
    print(name, "greedy", model.generate(prompt, do_sample=False, **options).tolist())
    if name != "mamba":
        print(name, "beams", model.generate(prompt, do_sample=False, num_beams=3, **options).tolist())
    set_seed(1)
    print(
        name,
        "sampled",
        model.generate(prompt, do_sample=True, top_k=20, top_p=0.9, temperature=0.8, **options).tolist(),
    )
