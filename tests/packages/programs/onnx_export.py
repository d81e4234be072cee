"""onnx: modules are exported, checked, and run with onnxruntime."""

import io

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, ids):
        return self.layer(self.embed(ids)).mean(1)


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layers = kind(8, 6, 2, batch_first=True, **options)
        self.out = nn.Linear(12 if options.get("bidirectional") else 6, 3)

    def forward(self, x):
        return self.out(self.layers(x)[0])


class Mixture(nn.Module):
    def forward(self, x):
        scores = torch.einsum("bld,bmd->blm", x, x).softmax(-1)
        mixed = torch.einsum("blm,bmd->bld", scores, x)
        return mixed.topk(3, -1)[0] + x.std(-1, keepdim=True) + x.roll(1, 1)[..., :3] + x.flip(1).cumsum(1)[..., 2:5]


class Transposed(nn.Module):
    def forward(self, x):
        flat = x.flatten(1)
        return (flat.T * 2).T + flat @ flat.T.detach()[:, :1] * 0


torch.manual_seed(0)
image = torch.randn(2, 3, 16, 16)
convolutional = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.SiLU(),
    nn.MaxPool2d(2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 4),
)
perceptron = nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2), nn.Softmax(-1))
for name, model, example in (
    ("convolutional", convolutional, image),
    ("perceptron", perceptron, image),
    ("attention", Attention(), torch.randint(0, 20, (2, 7))),
    ("lstm", Recurrent(nn.LSTM), torch.randn(2, 5, 8)),
    ("lstm of both directions", Recurrent(nn.LSTM, bidirectional=True), torch.randn(2, 5, 8)),
    ("gru", Recurrent(nn.GRU, bidirectional=True), torch.randn(2, 5, 8)),
    ("rnn", Recurrent(nn.RNN), torch.randn(2, 5, 8)),
    ("einsum, topk, std, roll", Mixture(), torch.randn(2, 5, 8)),
    ("transposes", Transposed(), torch.randn(2, 5, 8)),
):
    model.eval()
    file = io.BytesIO()
    torch.onnx.export(
        model,
        (example,),
        file,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )
    onnx.checker.check_model(onnx.load_from_string(file.getvalue()))
    session = onnxruntime.InferenceSession(file.getvalue())
    for given in (example, torch.cat([example, example, example[:1]])):
        found = session.run(None, {"x": given.numpy()})[0]
        print(name, found.shape, bool(np.allclose(found, model(given).detach().numpy(), atol=1e-5)))
