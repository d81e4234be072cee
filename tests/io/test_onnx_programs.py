"""torch.onnx.export of programs of torch.export, computed by the evaluator of the package onnx."""

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")


class Mixed(nn.Module):
    def forward(self, x):
        y = x.transpose(1, 2).contiguous().view(x.shape[0], -1)
        return torch.cat([y[:, :4], y[:, 4:]], 1).softmax(-1), nn.functional.elu(y, 0.5).max(1).values


CONVOLUTIONAL = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten())


@pytest.mark.parametrize(("make", "size"), [
    (lambda: nn.Sequential(*CONVOLUTIONAL), (2, 3, 4, 4)), (Mixed, (2, 3, 4)), (lambda: nn.LayerNorm(4), (2, 3, 4)),
])  # fmt: skip
def test_programs_are_written(make, size, tmp_path):
    torch.manual_seed(0)
    module, x = make().eval(), torch.randn(size)
    program = export(module, (x,), dynamic_shapes=({0: Dim("n")},))
    made = torch.onnx.export(program, f=tmp_path / "model.onnx")
    assert made.exported_program is program
    other = torch.cat([x, x, x[:1]])
    meant = module(other)
    for ours, theirs in zip(made.call_reference(other), meant if isinstance(meant, tuple) else (meant,), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    with pytest.raises(torch.onnx.OnnxExporterError, match="open sizes already"):
        torch.onnx.export(program, dynamic_shapes=({0: "n"},))


def test_batch_norm_of_torch_is_not_the_functions():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("weight", "bias", "mean"):
                self.register_buffer(name, torch.randn(3))
            self.register_buffer("var", torch.rand(3) + 1)

        def forward(self, x):
            return torch.batch_norm(x, self.weight, self.bias, self.mean, self.var, False, 0.1, 1e-5, False)

    module, x = Norm(), torch.randn(2, 3)
    assert torch.allclose(torch.onnx.export(module, (x,)).call_reference(x)[0], module(x), atol=1e-5)
