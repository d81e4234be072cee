"""transformers: Trainer with resume, gradient checkpointing, bfloat16 autocast, shards of safetensors."""

import os
import tempfile

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
config = LlamaConfig(
    vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
    max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip


class Lines(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randint(3, 64, (32, 16), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"input_ids": self.x[i], "labels": self.x[i]}


def trainer(folder, **options):
    set_seed(0)
    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=4, num_train_epochs=2, logging_steps=4, save_steps=8, report_to=[],
        use_cpu=True, disable_tqdm=True, seed=0, data_seed=0, lr_scheduler_type="linear", warmup_steps=2, **options,
    )  # fmt: skip
    made = Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=Lines())
    made.remove_callback(PrinterCallback)  # prints seconds
    return made


with tempfile.TemporaryDirectory() as folder:
    whole = trainer(folder)
    whole.train()
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    print("losses", *losses)
    again = trainer(folder)
    again.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-8"))
    print("resumed", [entry["loss"] for entry in again.state.log_history if "loss" in entry][-1])
    same = all(
        torch.allclose(a, b, atol=1e-6) for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True)
    )
    print("resumed to the same weights", same)
    print("evaluated", trainer(folder).evaluate(Lines())["eval_loss"])

with tempfile.TemporaryDirectory() as folder:
    checkpointed = trainer(folder, gradient_checkpointing=True, gradient_accumulation_steps=2, max_grad_norm=0.5)
    checkpointed.train()
    print("checkpointing", [entry["loss"] for entry in checkpointed.state.log_history if "loss" in entry])

set_seed(0)
model = LlamaForCausalLM(config)
x = Lines().x[:4]
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = model(x, labels=x).loss
loss.backward()
print("bfloat16 loss about", round(loss.item(), 1), loss.dtype)
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder, max_shard_size="20KB")
    print("shards", sorted(os.listdir(folder)))
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    print("loaded", all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True)))
    half = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    print("loaded as", half.dtype, half(x).logits.shape)
