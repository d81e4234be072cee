"""peft: adapters on a small Llama train, merge, and are saved and loaded."""

import tempfile

import torch
from peft import AdaLoraConfig, IA3Config, LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
from transformers.utils import logging

logging.set_verbosity_error()
config = LlamaConfig(
    vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
    max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
set_seed(0)
x = torch.randint(3, 64, (2, 12))
modules = ["q_proj", "v_proj"]
for name, adapter in {
    "lora": LoraConfig(r=4, lora_alpha=8, target_modules=modules, lora_dropout=0.1, task_type="CAUSAL_LM"),
    "dora": LoraConfig(r=4, target_modules=modules, use_dora=True, task_type="CAUSAL_LM"),
    "adalora": AdaLoraConfig(init_r=6, target_r=4, target_modules=modules, total_step=10, task_type="CAUSAL_LM"),
    "ia3": IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM"),
    "prompt": PromptTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"),
}.items():
    set_seed(0)
    model = get_peft_model(LlamaForCausalLM(config), adapter)
    print(name, "trainable", sum(p.numel() for p in model.parameters() if p.requires_grad))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(3):
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(name, "loss", loss.item())
    if name != "lora":
        continue
    model.eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        set_seed(0)
        loaded = PeftModel.from_pretrained(LlamaForCausalLM(config), folder).eval()
        print("loaded", torch.allclose(loaded(x).logits, model(x).logits, atol=1e-5))
    logits = model(x).logits
    print("merged", torch.allclose(model.merge_and_unload()(x).logits, logits, atol=1e-4))
