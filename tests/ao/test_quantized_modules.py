"""Quantized modules against the float ones that they replace: one rounding of the result apart, or a stated error."""

import copy
import io

import mica as torch
import pytest
from mica import nn
from mica.ao import quantization as q
from mica.ao.nn import quantized as nnq
from mica.ao.nn.quantized.dynamic.rnn import quantized_rows as dynamic_rows
from mica.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

IMAGE = (2, 4, 6, 5)
CASES = {
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, padding=1, dilation=2, bias=False), IMAGE),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2, stride=2), (1, 2, 4, 5, 4)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), (2, 4, 5)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2, dilation=2), IMAGE),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 3, 2, bias=False), (1, 2, 3, 3, 3)),
    "Linear": (lambda: nn.Linear(5, 3), IMAGE),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), IMAGE),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(2), (1, 2, 3, 3, 3)),
    "ELU": (lambda: nn.ELU(0.5), IMAGE),
    "LeakyReLU": (lambda: nn.LeakyReLU(0.2), IMAGE),
    "Hardswish": (nn.Hardswish, IMAGE),
    "PReLU": (lambda: nn.PReLU(4), IMAGE),
    "LayerNorm": (lambda: nn.LayerNorm(5), IMAGE),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), IMAGE),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(4, affine=True), (2, 4, 9)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4), IMAGE),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(2), (1, 2, 3, 3, 3)),
    "ReLU6": (nn.ReLU6, IMAGE),
    "Dropout": (lambda: nn.Dropout(0.5), IMAGE),
}


class Between(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.quant, self.layer, self.dequant = q.QuantStub(), layer, q.DeQuantStub()

    def forward(self, x):
        return self.dequant(self.layer(self.quant(x)))


def converted(name):
    make, shape = CASES[name]
    model, x = Between(make()).eval(), torch.randn(shape)
    per_tensor = q.QConfig(activation=q.default_observer, weight=q.default_weight_observer)
    model.qconfig = per_tensor
    prepared = q.prepare(model)
    prepared(x)
    return model, q.convert(prepared), x


@pytest.mark.parametrize("name", CASES)
def test_a_result_is_one_rounding_apart(name):
    model, small, x = converted(name)
    assert type(small.layer) is getattr(nnq, name)
    given = small.quant(x)
    found = small.layer(given)
    layer = copy.deepcopy(model.layer)
    if hasattr(small.layer, "set_weight_bias"):
        layer.weight = nn.Parameter(small.layer.weight().dequantize())
    expected = layer(given.dequantize())
    assert found.is_quantized and found.dtype == torch.quint8 and found.shape == expected.shape
    least, most = (((n - found.q_zero_point()) * found.q_scale()) for n in (0, 255))
    error = (found.dequantize() - expected.clamp(least, most)).abs().max().item()
    assert error <= 0.5001 * found.q_scale() + 1e-6
    assert (small(x) - model(x)).abs().max() < 0.05 * model(x).abs().max() + 0.05


@pytest.mark.parametrize("name", ["Conv1d", "ConvTranspose2d", "Linear", "LayerNorm", "Hardswish"])
def test_states_and_names(name):
    _, small, x = converted(name)
    _, other, _ = converted(name)
    file = io.BytesIO()
    torch.save(small.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file), strict=False)
    assert torch.equal(other.layer(small.quant(x)).int_repr(), small.layer(small.quant(x)).int_repr())
    assert f"Quantized{name}(" in repr(small)


def test_constructors_take_torchs_arguments():
    layer = nnq.ConvTranspose2d(2, 4, (3, 1), stride=2, output_padding=(1, 0), bias=False)
    assert layer.weight().shape == (2, 4, 3, 1) and layer.bias() is None
    x = torch.quantize_per_tensor(torch.ones(1, 2, 3, 3), 0.1, 0, torch.quint8)
    assert (
        layer(x).shape
        == nn.ConvTranspose2d(2, 4, (3, 1), stride=2, output_padding=(1, 0))(torch.ones(1, 2, 3, 3)).shape
    )
    linear = nnq.Linear(3, 2)
    linear.set_weight_bias(torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8), torch.zeros(2))
    assert linear(torch.quantize_per_tensor(torch.ones(1, 3), 0.1, 0, torch.quint8)).dequantize().tolist() == [[3, 3]]
    for error, words, call in (
        (TypeError, "the weight is a quantized tensor", lambda: linear.set_weight_bias(torch.ones(2, 3), None)),
        (NotImplementedError, "padding_mode", lambda: nnq.Conv2d(1, 1, 1, padding_mode="reflect")),
        (ValueError, "divisible by groups", lambda: nnq.Conv2d(3, 4, 1, groups=2)),
        (ValueError, "Input shape must be", lambda: layer(x[0])),
        (RuntimeError, "Unsupported dtype", lambda: nnq.Linear(3, 2, dtype=torch.quint8)),
        (RuntimeError, "not intended to use the 'forward'", lambda: nnq.FloatFunctional()(x)),
    ):
        with pytest.raises(error, match=words):
            call()


def test_functions_of_quantized_tensors():
    x = torch.quantize_per_tensor(torch.randn(1, 2, 6, 6), 0.05, 100, torch.quint8)
    alike = {
        "max_pool2d": lambda t: nn.functional.max_pool2d(t, 2),
        "avg_pool2d": lambda t: nn.functional.avg_pool2d(t, 3, 2, 1),
        "adaptive_avg_pool2d": lambda t: nn.functional.adaptive_avg_pool2d(t, 2),
        "interpolate": lambda t: nn.functional.interpolate(t, scale_factor=2, mode="bilinear"),
        "mean": lambda t: t.mean((2, 3)),
        "hardtanh": lambda t: nn.functional.hardtanh(t, -0.5, 0.7),
        "relu6": nn.functional.relu6,
        "leaky_relu": lambda t: nn.functional.leaky_relu(t, 0.3),
    }
    for name, function in alike.items():
        got, expected = function(x), function(x.dequantize())
        assert (got.q_scale(), got.q_zero_point()) == (x.q_scale(), 100), name
        assert (got.dequantize() - expected).abs().max() <= 0.5001 * 0.05, name
    for function, scale, zero_point in ((torch.sigmoid, 1 / 256, 0), (torch.tanh, 1 / 128, 128)):
        got = function(x)
        assert (got.q_scale(), got.q_zero_point()) == (scale, zero_point)
        assert (got.dequantize() - function(x.dequantize())).abs().max() <= scale  # one is above the last step
    both = nnq.QFunctional(0.1, 3)
    y = x[..., :3]
    assert torch.equal(both.mul_scalar(y, -2.0).dequantize(), y.dequantize() * -2)
    assert torch.equal(both.mul_scalar(y, 0.5).int_repr(), y.int_repr())
    assert both.matmul(y, y.transpose(-1, -2).contiguous()).q_scale() == pytest.approx(0.1)


def recurrent(name, **options):
    torch.manual_seed(0)
    return getattr(nn, name)(5, 8, **options).eval()


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}]
)
def test_recurrent_layers(name, options):
    layer = recurrent(name, **options)
    small = q.quantize_dynamic(nn.ModuleList([layer]), {getattr(nn, name)})[0]
    assert repr(small).startswith(f"DynamicQuantized{name}(5, 8")
    assert small.get_weight()["weight_ih_l0"].dtype == torch.qint8 and bool(small.get_bias()) == options.get(
        "bias", True
    )
    x = torch.randn(7, 3, 5)
    states = torch.randn(
        small.num_layers * (2 if small.bidirectional else 1), 3 if not options.get("batch_first") else 7, 8
    )
    for hx in (None, (states, states) if name == "LSTM" else states):
        expected, last = layer(x, hx)
        found, own = small(x, hx)
        assert (found - expected).abs().max() < 0.03  # 8 bits of weights, inputs and states
        for a, b in zip(own if name == "LSTM" else [own], last if name == "LSTM" else [last], strict=True):
            assert a.shape == b.shape and (a - b).abs().max() < 0.05
    half = q.quantize_dynamic(nn.ModuleList([layer]), {getattr(nn, name)}, dtype=torch.float16)[0]
    assert (half(x)[0] - layer(x)[0]).abs().max() < 1e-3
    if options.get("batch_first"):
        return
    packed = pack_padded_sequence(x, torch.tensor([4, 7, 2]), enforce_sorted=False)
    (found, lengths), own = pad_packed_sequence(small(packed)[0]), small(packed)[1]
    (expected, _), last = pad_packed_sequence(layer(packed)[0]), layer(packed)[1]
    assert lengths.tolist() == [4, 7, 2] and (found - expected).abs().max() < 0.03
    assert (own[0] - last[0]).abs().max() < 0.03
    single = small(x[:, 0])
    assert single[0].shape == (7, layer(x[:, 0])[0].shape[-1]) and single[1][0].dim() == layer(x[:, 0])[1][0].dim()


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell", "RNNCell"])
def test_recurrent_cells(name):
    cell = recurrent(name)
    small = q.quantize_dynamic(nn.ModuleList([cell]))[0]
    x, h = torch.randn(3, 5), torch.randn(3, 8)
    hx = (h, h) if name == "LSTMCell" else h
    for state in (None, hx):
        found, expected = (list(r) if name == "LSTMCell" else [r] for r in (small(x, state), cell(x, state)))
        assert all((a - b).abs().max() < 0.05 for a, b in zip(found, expected, strict=True))
    relu = q.quantize_dynamic(nn.ModuleList([nn.RNNCell(5, 8, nonlinearity="relu")]))[0]
    assert (relu(x) >= 0).all()
    again = type(small)(5, 8)
    again.load_state_dict(small.state_dict())
    torch.testing.assert_close(
        again(x)[0] if name == "LSTMCell" else again(x), small(x)[0] if name == "LSTMCell" else small(x)
    )


def test_what_recurrent_layers_refuse():
    small = nnq.dynamic.LSTM(5, 8)
    for error, words, call in (
        (RuntimeError, "Expected hidden size", lambda: small(torch.ones(2, 3, 5), (torch.ones(1, 2, 8),) * 2)),
        (RuntimeError, "must be equal to input_size. Expected 5, got 4", lambda: small(torch.ones(2, 3, 4))),
        (ValueError, "Expected input to be 2D or 3D", lambda: small(torch.ones(5))),
        (RuntimeError, "sequence length to be larger than 0", lambda: small(torch.ones(0, 3, 5))),
        (RuntimeError, "Unsupported dtype", lambda: nnq.dynamic.GRU(5, 8, dtype=torch.quint8)),
        (NotImplementedError, "proj_size", lambda: nnq.dynamic.LSTM.from_float(nn.LSTM(5, 8, proj_size=3))),
        (RuntimeError, "has no weight_ih_l7", lambda: small.set_weight_bias({"weight_ih_l7": torch.ones(1)})),
        (RuntimeError, "inconsistent input_size", lambda: nnq.dynamic.GRUCell(5, 8)(torch.ones(2, 4))),
    ):
        with pytest.raises(error, match=words):
            call()


def test_bags_of_rows():
    bag = nn.EmbeddingBag(10, 4, mode="mean", padding_idx=2)
    small = q.quantize_dynamic(nn.ModuleList([bag]), dtype=torch.quint8)[0]
    indices, offsets = torch.tensor([1, 2, 9, 4, 1, 1]), torch.tensor([0, 3])
    torch.testing.assert_close(small(indices, offsets), bag(indices, offsets), rtol=0, atol=0.02)
    assert type(small) is nnq.EmbeddingBag and small.weight().dtype == torch.qint8


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("Conv")])
def test_convolutions_that_quantize_their_input(name):
    make, shape = CASES[name]
    layer, x = make(), torch.randn(shape)
    small = q.quantize_dynamic(nn.ModuleList([layer]), {type(layer)})[0]
    assert type(small) is getattr(nnq.dynamic, name) and f"DynamicQuantized{name}(" in repr(small)
    found, expected = small(x), layer(x)
    assert found.dtype == torch.float32 and (found - expected).abs().max() < 0.03 * expected.abs().max()
    again = q.quantize_dynamic(nn.ModuleList([make()]), {type(layer)})[0]
    again.load_state_dict(small.state_dict(), strict=False)
    assert torch.equal(again(x), found)
    with pytest.raises(ValueError, match="Input shape must be"):
        small(x[0])


def test_quantized_functions_by_name():
    x = torch.quantize_per_tensor(torch.randn(1, 2, 6, 6), 0.05, 100, torch.quint8)
    real, f, plain = x.dequantize(), nnq.functional, nn.functional
    for found, expected in (
        (f.avg_pool2d(x, 2), plain.avg_pool2d(real, 2)),
        (f.adaptive_avg_pool2d(x, 3), plain.adaptive_avg_pool2d(real, 3)),
        (f.max_pool2d(x, 3, 2), plain.max_pool2d(real, 3, 2)),
        (f.max_pool1d(x[0], 2), plain.max_pool1d(real[0], 2)),
        (f.upsample_nearest(x, scale_factor=2), plain.interpolate(real, scale_factor=2)),
        (f.upsample_bilinear(x, 4), plain.interpolate(real, 4, mode="bilinear", align_corners=True)),
        (f.hardtanh(x, -0.5, 0.5), real.clamp(-0.5, 0.5)),
        (f.clamp(x, -0.5, 0.5), real.clamp(-0.5, 0.5)),
        (f.threshold(x, 0.3, 0.1), plain.threshold(real, 0.3, 0.1)),
        (f.leaky_relu(x, 0.2, scale=0.03, zero_point=20), plain.leaky_relu(real, 0.2).clamp(-0.6, 7)),
        (f.hardswish(x, 0.03, 20), plain.hardswish(real).clamp(-0.6, 7)),
        (f.elu(x, 0.03, 40), plain.elu(real).clamp(-1.2, 6.45)),
        (f.celu(x, 0.03, 40, 0.5), plain.celu(real, 0.5).clamp(-1.2, 6.45)),
        (f.hardsigmoid(x), plain.hardsigmoid(real).clamp(0, 255 / 256)),
    ):
        assert found.is_quantized and (found.dequantize() - expected).abs().max() <= 0.5001 * found.q_scale()
    y = x.clone()
    assert f.hardtanh(y, 0, 1, inplace=True) is y and y.dequantize().max() <= 1
    with pytest.raises(ValueError, match="Input to 'quantized.avg_pool2d' must be quantized!"):
        f.avg_pool2d(real, 2)


@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
def test_the_state_of_linear_layers_has_torchs_names(dtype):
    made = nn.quantized.dynamic.Linear(2, 3, dtype=dtype)
    made.set_weight_bias(dynamic_rows(torch.arange(6.0).view(3, 2), dtype), torch.ones(3))
    state = made.state_dict()
    assert list(state) == ["scale", "zero_point", "_packed_params.dtype", "_packed_params._packed_params"]
    assert state["_packed_params.dtype"] == dtype and state["scale"].item() == 1 and state["zero_point"].item() == 0
    assert state._metadata[""] == {"version": 4} and state._metadata["_packed_params"] == {"version": 3}
    weight, bias = state["_packed_params._packed_params"]
    assert weight.dtype == (torch.qint8 if dtype == torch.qint8 else torch.float32) and bias.tolist() == [1] * 3
    other = nn.quantized.dynamic.Linear(2, 3, dtype=dtype)
    assert str(other.load_state_dict(state)) == "<All keys matched successfully>"
    x = torch.linspace(-1, 1, 8).view(4, 2)
    assert torch.equal(other(x), made(x))
    assert list(nn.quantized.Linear(2, 3).state_dict()) == list(state)


def test_a_dynamic_convolution_keeps_its_scale():
    layer = nn.quantized.dynamic.Conv1d(2, 3, 1)
    layer(torch.ones(1, 2, 4))
    assert list(layer.state_dict()) == ["weight", "bias", "scale", "zero_point"] and "scale=1.0" in repr(layer)
    with pytest.raises(ValueError, match=r"Input shape must be `\(N, C, L\)`!"):
        layer(torch.ones(2, 4))


def test_joined_layers_by_their_older_names():
    assert nn.intrinsic.LinearReLU is torch.ao.nn.intrinsic.LinearReLU and nn.qat.Linear is torch.ao.nn.qat.Linear
    joined = nn.intrinsic.LinearReLU(nn.Linear(2, 3), nn.ReLU())
    layer = nn.intrinsic.quantized.dynamic.LinearReLU.from_float(joined)
    x = torch.linspace(-1, 1, 8).view(4, 2)
    torch.testing.assert_close(layer(x), joined(x), atol=0.03, rtol=0)
    assert repr(layer).startswith("DynamicQuantizedLinearReLU(in_features=2")


def test_functional_has_a_place_for_its_observer():
    plain = nnq.FloatFunctional()
    assert [(name, type(child)) for name, child in plain.named_children()] == [
        ("activation_post_process", torch.nn.Identity)
    ]
    assert list(nnq.FXFloatFunctional().children()) == []
    model = torch.nn.Sequential(plain)
    model.qconfig = torch.ao.quantization.default_qconfig
    prepared = torch.ao.quantization.prepare(model)
    assert isinstance(prepared[0].activation_post_process, torch.ao.quantization.MinMaxObserver)
    prepared[0].add(torch.ones(2), torch.ones(2))
    assert isinstance(torch.ao.quantization.convert(prepared)[0], nnq.QFunctional)
    assert type(torch.ao.quantization.convert(model)[0]) is nnq.FloatFunctional
