"""trl: supervised fine-tuning and direct preferences on a small Llama, with datasets."""

import os
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

logging.set_verbosity_error()
logging.disable_progress_bar()
words = ["<pad>", "<unk>", "<s>", "</s>", "a", "cat", "dog", "sat", "ran", "the", "mat", "far", "on", "."]
inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>"
)
config = LlamaConfig(
    vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
    max_position_embeddings=64, pad_token_id=0, bos_token_id=2, eos_token_id=3,
)  # fmt: skip
texts = ["a cat sat on the mat .", "the dog ran far .", "the cat ran .", "a dog sat on a mat ."] * 2
print("datasets", Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0]]}).with_format("torch")[:]["x"].sum().item())
common = {
    "per_device_train_batch_size": 2, "max_steps": 4, "logging_steps": 1, "report_to": [], "use_cpu": True, "disable_tqdm": True, "seed": 0,
    "save_strategy": "no", "learning_rate": 1e-3, "bf16": False, "gradient_checkpointing": False,
}  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    set_seed(0)
    trainer = SFTTrainer(
        LlamaForCausalLM(config), SFTConfig(output_dir=os.path.join(folder, "sft"), max_length=16, **common),
        train_dataset=Dataset.from_dict({"text": texts}), processing_class=tokenizer,
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    print("sft", [entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    set_seed(0)
    pairs = Dataset.from_dict(
        {"prompt": ["a cat", "the dog"] * 4, "chosen": [" sat .", " ran ."] * 4, "rejected": [" far", " on"] * 4}
    )
    preferring = DPOTrainer(
        LlamaForCausalLM(config), ref_model=LlamaForCausalLM(config),
        args=DPOConfig(output_dir=os.path.join(folder, "dpo"), max_length=24, **common), train_dataset=pairs, processing_class=tokenizer,
    )  # fmt: skip
    preferring.remove_callback(PrinterCallback)
    preferring.train()
    print("dpo", [entry["loss"] for entry in preferring.state.log_history if "loss" in entry])
    print(
        "margins finite",
        all(abs(entry["rewards/margins"]) < 1 for entry in preferring.state.log_history if "rewards/margins" in entry),
    )
print("threads", torch.get_num_threads() > 0)
