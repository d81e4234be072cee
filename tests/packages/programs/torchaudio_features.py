"""torchaudio: features, filters, effects, losses and small models."""

import torch
import torchaudio
import torchaudio.functional as F
import torchaudio.transforms as T

torch.manual_seed(0)
wave = torch.randn(2, 4000) * 0.3
for name, transform in (
    ("spectrogram", T.Spectrogram(n_fft=256)), ("mel", T.MelSpectrogram(16000, n_fft=256, n_mels=20)),
    ("mfcc", T.MFCC(16000, n_mfcc=10, melkwargs={"n_fft": 256, "n_mels": 20})), ("resample", T.Resample(16000, 8000)),
    ("stretch", T.TimeMasking(10)), ("decibel", T.AmplitudeToDB()), ("mu law", T.MuLawEncoding()),
):  # fmt: skip
    torch.manual_seed(1)
    found = transform(wave)
    print(name, tuple(found.shape), found.float().abs().sum().item())
griffin = T.GriffinLim(n_fft=256, n_iter=4, rand_init=False)(T.Spectrogram(n_fft=256)(wave))
print("griffin", tuple(griffin.shape))
print(
    "filters",
    F.lowpass_biquad(wave, 16000, 2000.0).abs().sum().item(),
    F.equalizer_biquad(wave, 16000, 1000.0, 3.0).abs().sum().item(),
)
print(
    "overdrive",
    F.overdrive(wave, 10, 20).abs().sum().item(),
    F.flanger(wave[:, None].repeat(1, 2, 1), 16000).abs().sum().item(),
)
a, b = torch.tensor([1.0, -0.5, 0.2], requires_grad=True), torch.tensor([0.3, 0.2, 0.1], requires_grad=True)
out = F.lfilter(wave, a, b)
out.pow(2).sum().backward()
print("lfilter", out.abs().sum().item(), a.grad.tolist(), b.grad.tolist())
logits = torch.randn(2, 6, 4, 5, requires_grad=True)
loss = F.rnnt_loss(
    logits,
    torch.randint(1, 5, (2, 3), dtype=torch.int32),
    torch.tensor([6, 5], dtype=torch.int32),
    torch.tensor([3, 2], dtype=torch.int32),
    blank=0,
)
loss.backward()
print("transducer", loss.item(), logits.grad.abs().sum().item())
emission = torch.randn(1, 12, 5).log_softmax(-1)
paths, scores = F.forced_align(emission, torch.tensor([[1, 2, 2, 3]], dtype=torch.int32), blank=0)
print("aligned", paths.tolist(), scores.sum().item(), len(F.merge_tokens(paths[0], scores[0].exp())))
torch.manual_seed(2)
model = torchaudio.models.Conformer(input_dim=20, num_heads=2, ffn_dim=32, num_layers=1, depthwise_conv_kernel_size=3)
print("conformer", model(torch.randn(2, 10, 20), torch.tensor([10, 8]))[0].abs().sum().item())
separation = torchaudio.models.ConvTasNet(
    num_sources=2,
    enc_kernel_size=8,
    enc_num_feats=16,
    msk_num_feats=8,
    msk_num_hidden_feats=8,
    msk_num_layers=2,
    msk_num_stacks=1,
)
print("separation", tuple(separation(torch.randn(1, 1, 400)).shape))
wav2vec = torchaudio.models.wav2vec2_model(
    "group_norm", [(16, 10, 5), (16, 3, 2)], False, 16, 0.0, 4, 2, 1, 2, 0.0, 32, 0.0, 0.0, False, 0.0, 8
)
print("wav2vec", wav2vec(wave)[0].sum().item())
