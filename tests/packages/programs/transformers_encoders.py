"""transformers: encoders for text, images and sound with random weights train."""

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    CLIPConfig,
    CLIPModel,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    Wav2Vec2Config,
    Wav2Vec2ForCTC,
    WhisperConfig,
    WhisperForConditionalGeneration,
    set_seed,
)
from transformers.utils import logging

logging.set_verbosity_error()


def train(name, model, **inputs):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(name, "loss", loss.item())
    return model.eval()


set_seed(0)
text = {
    "input_ids": torch.randint(3, 90, (3, 12)),
    "attention_mask": torch.tensor([[1] * 12, [1] * 8 + [0] * 4, [1] * 5 + [0] * 7]),
}
small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
train(
    "bert",
    BertForSequenceClassification(BertConfig(vocab_size=90, num_labels=3, **small)),
    **text,
    labels=torch.tensor([0, 1, 2]),
)
images = torch.randn(2, 3, 32, 32)
vit = ViTConfig(image_size=32, patch_size=8, num_labels=4, **small)
train("vit", ViTForImageClassification(vit), pixel_values=images, labels=torch.tensor([1, 3]))
t5_config = T5Config(vocab_size=90, d_model=32, d_ff=64, d_kv=8, num_layers=2, num_heads=4, decoder_start_token_id=0)
t5 = train("t5", T5ForConditionalGeneration(t5_config), **text, labels=torch.randint(3, 90, (3, 7)))
print("t5 greedy", t5.generate(**text, max_new_tokens=6, do_sample=False).tolist())
print("t5 beams", t5.generate(**text, max_new_tokens=6, do_sample=False, num_beams=2).tolist())
whisper_config = WhisperConfig(
    vocab_size=90, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=50, max_target_positions=40, num_mel_bins=16,
    decoder_start_token_id=1, pad_token_id=0, bos_token_id=1, eos_token_id=2, suppress_tokens=None, begin_suppress_tokens=None,
)  # fmt: skip
sound = torch.randn(2, 16, 100)
whisper = train(
    "whisper",
    WhisperForConditionalGeneration(whisper_config),
    input_features=sound,
    labels=torch.randint(3, 90, (2, 9)),
)
print("whisper greedy", whisper.generate(sound, max_new_tokens=5, do_sample=False).tolist())
part = {**small, "projection_dim": 16}
clip = CLIPModel(
    CLIPConfig(
        text_config={"vocab_size": 90, **part},
        vision_config={"image_size": 32, "patch_size": 8, **part},
        projection_dim=16,
    )
)
ids = torch.randint(3, 90, (2, 9))
train("clip", clip, input_ids=ids, pixel_values=images, return_loss=True)
wav_config = Wav2Vec2Config(
    vocab_size=20, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2,
    num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, mask_time_prob=0.0, ctc_loss_reduction="mean", **small,
)  # fmt: skip
train("wav2vec2", Wav2Vec2ForCTC(wav_config), input_values=torch.randn(2, 2000), labels=torch.randint(1, 20, (2, 6)))
