"""transformers' Trainer under torchrun: two processes train a small Llama with DDP, evaluate, save, and go on from a checkpoint."""

import os
import subprocess
import sys
import tempfile


def launch(*arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*command, os.path.abspath(__file__), *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
        sys.exit(1)
    return done.stdout


def train(folder, resume):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

    set_seed(5)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, use_cache=False,
    )  # fmt: skip
    tokens = torch.randint(0, 64, (48, 16))
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=4, per_device_eval_batch_size=4, max_steps=12, logging_steps=2,
        save_steps=6, eval_strategy="steps", eval_steps=6, learning_rate=5e-3, gradient_accumulation_steps=2,
        report_to=[], use_cpu=True, disable_tqdm=True, seed=5, max_grad_norm=0.5, ddp_find_unused_parameters=False,
    )  # fmt: skip
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=rows, eval_dataset=rows[:16])
    result = trainer.train(resume_from_checkpoint=resume == "resume" and os.path.join(folder, "checkpoint-6"))
    if trainer.is_world_process_zero():
        print(
            arguments.parallel_mode.value,
            arguments.world_size,
            result.global_step,
            type(trainer.model_wrapped).__name__,
        )
        for entry in trainer.state.log_history:
            kept = {key: entry[key] for key in ("step", "loss", "grad_norm", "eval_loss") if key in entry}
            print(*[part for pair in kept.items() for part in pair])
        print("weights", *[p.double().abs().sum().item() for p in trainer.model.parameters()])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(*sys.argv[1:])
    else:
        with tempfile.TemporaryDirectory() as folder:
            for how in ("fresh", "resume"):
                lines = launch(folder, how).splitlines()
                print(how, *[line for line in lines if not line.startswith("{")], sep="\n")
