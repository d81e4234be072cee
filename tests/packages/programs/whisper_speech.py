"""openai-whisper: a small model with random weights hears a tone, transcribes with beams, and learns."""

import numpy as np
import torch
import whisper
from whisper.decoding import DecodingOptions
from whisper.model import ModelDimensions, Whisper

torch.manual_seed(0)
model = Whisper(
    ModelDimensions(
        n_mels=80, n_audio_ctx=1500, n_audio_state=64, n_audio_head=2, n_audio_layer=2, n_vocab=51864, n_text_ctx=448,
        n_text_state=64, n_text_head=2, n_text_layer=2,
    )
).eval()  # fmt: skip
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_(torch.randn_like(parameter) * 0.1)
tone = np.sin(np.linspace(0, 4000, 32000)).astype(np.float32)
spectrum = whisper.log_mel_spectrogram(whisper.pad_or_trim(torch.from_numpy(tone)))
print("spectrum", tuple(spectrum.shape), spectrum.double().sum().item())
with torch.no_grad():
    heard = model.embed_audio(spectrum[None])
    scores = model.logits(torch.tensor([[50257, 50362, 3]]), heard)
print("heard", heard.double().abs().sum().item(), scores.double().abs().sum().item(), scores.argmax(-1).tolist())
for options in ({"sample_len": 8, "without_timestamps": True}, {"sample_len": 5, "beam_size": 2}):
    said = whisper.decode(model, spectrum, DecodingOptions(fp16=False, language="en", **options))
    print("said", said.tokens, said.avg_logprob)
loss = torch.nn.functional.cross_entropy(
    model(spectrum[None], torch.tensor([[50257, 5, 3]]))[0], torch.tensor([1, 2, 3])
)
loss.backward()
print("loss", loss.item(), model.encoder.conv1.weight.grad.abs().sum().item())
