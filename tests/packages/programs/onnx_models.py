"""onnx: models of timm and transformers are exported, checked, and run with onnxruntime on batches of other sizes."""

import io

import numpy as np
import onnx
import onnxruntime
import timm
import torch
import transformers
from torch import nn


class Logits(nn.Module):
    """A model of transformers whose result is one tensor."""

    def __init__(self, model, field):
        super().__init__()
        self.model, self.field = model, field

    def forward(self, x):
        return getattr(self.model(x, return_dict=True), self.field)


torch.manual_seed(0)
image, ids = torch.randn(2, 3, 64, 64), torch.randint(0, 90, (2, 12))
small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 99}
models = [(name, timm.create_model(name, num_classes=5), image) for name in
          ("resnet18", "efficientnet_b0", "convnext_atto", "mobilenetv3_small_050")]  # fmt: skip
models += [
    ("vit_tiny", timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=64), image),
    ("BERT", Logits(transformers.BertModel(transformers.BertConfig(**small)), "last_hidden_state"), ids),
    ("DistilBERT", Logits(transformers.DistilBertModel(transformers.DistilBertConfig(
        dim=32, n_layers=2, n_heads=2, hidden_dim=64, vocab_size=99)), "last_hidden_state"), ids),
]  # fmt: skip
for name, model, example in models:
    model.eval()
    file = io.BytesIO()
    torch.onnx.export(model, (example,), file, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}},
                      opset_version=18, dynamo=False)  # fmt: skip
    onnx.checker.check_model(onnx.load_from_string(file.getvalue()))
    session = onnxruntime.InferenceSession(file.getvalue())
    for given in (example, torch.cat([example, example[:1]])):
        with torch.no_grad():
            expected = model(given).numpy()
        found = session.run(None, {"x": given.numpy()})[0]
        print(name, found.shape, bool(np.allclose(found, expected, atol=1e-4, rtol=1e-3)), float(np.abs(found).sum()))
