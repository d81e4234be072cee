"""torch.onnx.export heeds the arguments of the operations that it writes: each file computes what the module does."""

import mica as torch
import pytest
from mica import nn
from mica.nn import functional as F

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")


class Module(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def changed(change):
    def function(x):
        y = x * 1
        change(y)
        return y

    return function


def relu_of_a_view(x):
    y = (x * 1).view(-1)
    return y.relu_()


WRITTEN = {
    "groups": lambda x: F.scaled_dot_product_attention(torch.cat([x, x], 1), x, x, enable_gqa=True),
    "div_floor": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    "div_trunc": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
    "div_integers": lambda x: torch.div((x * 10).long(), 3, rounding_mode="trunc"),
    "round_decimals": lambda x: torch.round(x, decimals=2),
    "leaky_relu_of_0": lambda x: F.leaky_relu(x, 0.0),
    "elu_of_0": lambda x: F.elu(x, 0.0),
    "softplus_threshold": lambda x: F.softplus(x * 9, 2.0, 4.0),
    "softmax_dtype": lambda x: x.softmax(1, dtype=torch.float64),
    "log_softmax_dtype": lambda x: F.log_softmax(x, 1, dtype=torch.float64),
    "clamp_integers": lambda x: (x * 5).int().clamp(min=0.5),
    "clamp_by_tensors": lambda x: x.clamp(torch.zeros(6), x.exp()),
    "max_of_two": lambda x: torch.max(x, -x),
    "min_of_two": lambda x: x.min(other=-x),
    "rsub": lambda x: torch.rsub(x, 1, alpha=2),
    "reflected": lambda x: 1 - x,
    "and_of_integers": lambda x: (x * 9).int() & 3,
    "xor_of_integers": lambda x: torch.bitwise_xor((x * 9).int(), 3),
    "not_of_integers": lambda x: ~(x * 9).int(),
    "and_of_truths": lambda x: (x > 0) & (x < 1),
    "divisor": lambda x: F.avg_pool2d(x, 2, padding=1, divisor_override=3),
    "pool_of_one": lambda x: F.max_pool2d(x[0], 2),
    "convolution_of_one": lambda x: F.conv2d(x[0], torch.ones(2, 3, 2, 2)),
    "scatter_reduce": lambda x: torch.ones(2, 3, 6, 6).scatter(1, (x > 0).long(), x, reduce="add"),
    "scale": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
    "scale_again": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
    "scale_nearest": lambda x: F.interpolate(x, scale_factor=0.7),
    "nearest_exact": lambda x: F.interpolate(x, size=(4, 9), mode="nearest-exact"),
    "antialias": lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
    "mish_": changed(lambda y: F.mish(y, inplace=True)),
    "celu_": changed(lambda y: F.celu(y, 2.0, True)),
    "threshold_": changed(lambda y: F.threshold(y, 0.5, -1.0, inplace=True)),
    "squeeze_": lambda x: (x[:1] * 1).squeeze_(0),
    "a_view_": relu_of_a_view,
    "no_dropout": lambda x: F.dropout2d(F.dropout(x, 0.5, training=False), 0.0),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_computes_what_the_module_does(name):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, 6)
    made = torch.onnx.export(Module(WRITTEN[name]), (x,))
    other = x.flip(0) * 1.1
    (ours,), meant = made.call_reference(other), WRITTEN[name](other)
    assert ours.dtype == meant.dtype and ours.shape == meant.shape
    assert torch.allclose(ours, meant, atol=1e-5)


def read_elsewhere(x):
    y = x * 1
    y[0].add_(1)
    return y


REFUSED = {
    "read_elsewhere": (read_elsewhere, "changed in place through another one"),
    "transpose_": (lambda x: (x * 1).transpose_(0, 1), "changes a shape in place"),
    "dropped_channels": (lambda x: F.dropout2d(x, 0.5), "export in eval mode"),
    "dropped_weights": (lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), "drops weights"),
    "area": (lambda x: F.interpolate(x, size=3, mode="area"), "interpolation of mode 'area' is not written"),
    "antialias": (
        lambda x: F.interpolate(x, size=3, mode="bicubic", antialias=True),
        "antialias is written of mode 'bilinear'",
    ),
    "divisor": (lambda x: F.avg_pool2d(x, 4, ceil_mode=True, divisor_override=3), "not written with ceil_mode"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_file_would_compute_otherwise_is_refused(name):
    function, words = REFUSED[name]
    with pytest.raises(torch.onnx.OnnxExporterError, match=words):
        torch.onnx.export(Module(function), (torch.ones(2, 3, 6, 6),))


def test_dropout_that_draws_is_written():
    made = torch.onnx.export(Module(lambda x: F.dropout(x, 0.25)), (torch.ones(1000),))
    (node,) = (node for node in made.model_proto.graph.node if node.op_type == "Dropout")
    (out,) = made.call_reference(torch.ones(1000))
    assert len(node.input) == 3 and 100 < (out == 0).sum() < 400 and out.max() == pytest.approx(4 / 3)


def test_inputs_by_name():
    class Two(nn.Module):
        def forward(self, a, b):
            return a - b

    a, b = torch.ones(2), torch.zeros(2)
    made = torch.onnx.export(Two(), (a, b))
    for given in (made.call_reference(a, b), made.call_reference(b=b, a=a), made.call_reference(a, b=b)):
        assert given[0].tolist() == [1, 1]
    with pytest.raises(TypeError, match="has no input 'c'"):
        made.call_reference(a, c=b)
    with pytest.raises(TypeError, match="has 2 inputs, but 1 were given"):
        made.call_reference(a)


def test_weights_beside_the_file(tmp_path):
    model, x = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 1)), torch.ones(1, 16)
    path = tmp_path / "model.onnx"
    for _ in range(2):  # what lies there is written anew
        made = torch.onnx.export(model, (x,), path)
        assert (tmp_path / "model.onnx.data").stat().st_size < 2 * 4 * 16 * 16
    meant = model(x)
    assert torch.allclose(made.call_reference(x)[0], meant, atol=1e-5)
    read = torch.onnx.exporter.ONNXProgram(onnx.load(path))
    assert torch.allclose(read.call_reference(x)[0], meant, atol=1e-5)
    torch.onnx.export(model, (x,), tmp_path / "one.onnx", external_data=False)
    torch.onnx.export(model, (x,), tmp_path / "older.onnx", dynamo=False)
    made.save(tmp_path / "saved.onnx")
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "model.onnx", "model.onnx.data", "older.onnx", "one.onnx", "saved.onnx",
    ]  # fmt: skip
