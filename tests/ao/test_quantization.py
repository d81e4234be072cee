"""The eager flow of quantization: observers, prepare and convert, dynamic weights, training with rounded weights."""

import mica as torch
import pytest
from mica import nn
from mica.ao import quantization as q
from mica.ao.nn import quantized as nnq


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()
        self.conv, self.relu, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Linear(8 * 6 * 6, 5)
        self.sum = q.FloatFunctional()

    def forward(self, x):
        x = self.relu(self.conv(self.quant(x)))
        x = self.sum.add(x, x)
        return self.dequant(self.fc(x.flatten(1)))


def prepared():
    torch.manual_seed(0)
    model = Net().eval()
    model.qconfig = q.get_default_qconfig("onednn")  # 8 bits of activations
    return model, q.prepare(model)


def test_observers_find_scales():
    observer = q.MinMaxObserver()
    observer(torch.tensor([-1.0, 0.5]))
    observer(torch.tensor([2.0]))
    scale, zero_point = observer.calculate_qparams()
    assert float(scale) == pytest.approx(3 / 255) and int(zero_point) == 85
    with pytest.warns(UserWarning, match="must run observer before"):
        assert float(q.MinMaxObserver().calculate_qparams()[0]) == 1.0
    channels = q.PerChannelMinMaxObserver(dtype=torch.qint8, qscheme=torch.per_channel_symmetric)
    channels(torch.tensor([[1.0, -2.0], [0.5, 0.0]]))
    assert channels.calculate_qparams()[0].tolist() == pytest.approx([2 / 127.5, 0.5 / 127.5])


def test_static_flow():
    float_model, observed = prepared()
    images = torch.randn(16, 3, 6, 6)
    expected = float_model(images)
    torch.testing.assert_close(observed(images), expected)
    quantized = q.convert(observed)
    assert isinstance(quantized.conv, nnq.Conv2d) and isinstance(quantized.fc, nnq.Linear)
    assert quantized.conv.weight().dtype is torch.qint8
    # Each of the five places that round adds at most half a step of its scale.
    error = (quantized(images) - expected).abs().max()
    assert error < 0.05 * expected.abs().max()


def test_integer_products_are_exact():
    torch.manual_seed(0)
    x = torch.quantize_per_tensor(torch.randn(4, 3, 7, 8), 0.05, 120, torch.quint8)
    w = torch.quantize_per_channel(torch.randn(6, 3, 3, 3), torch.rand(6) * 0.05 + 0.01, torch.zeros(6), 0, torch.qint8)
    got = nnq.functional.conv2d(x, w, None, stride=2, padding=1)
    torch.testing.assert_close(got, nn.functional.conv2d(x.dequantize(), w.dequantize(), stride=2, padding=1))
    rows = torch.quantize_per_tensor(torch.randn(5, 11), 0.05, 3, torch.qint8)
    y = torch.quantize_per_tensor(torch.randn(2, 11), 0.1, 100, torch.quint8)
    bias = torch.randn(5)
    torch.testing.assert_close(nnq.functional.linear(y, rows, bias), y.dequantize() @ rows.dequantize().t() + bias)


def test_dynamic_weights():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.randn(8, 32)
    small = q.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert isinstance(small[0], nnq.dynamic.Linear) and isinstance(model[0], nn.Linear)
    error = (small(x) - model(x)).abs().max()
    assert error < 0.05 * model(x).abs().max()
    with pytest.raises(ValueError, match="Don't know how to quantize with default settings for torch.qint32"):
        q.quantize_dynamic(model, dtype=torch.qint32)
    with pytest.raises(NotImplementedError, match="quantize_dynamic knows"):
        q.quantize_dynamic(model, {nn.ReLU})
    named = q.quantize_dynamic(model, {"0"})
    assert isinstance(named[0], nnq.dynamic.Linear) and isinstance(named[2], nn.Linear)


def test_embedding():
    torch.manual_seed(0)
    table = nn.Embedding(10, 6)
    small = nnq.Embedding.from_float(table)
    index = torch.tensor([[1, 9], [0, 1]])
    steps = table.weight.detach().abs().amax(1)[index].unsqueeze(-1) / 127
    assert ((small(index) - table(index)).abs() <= 0.51 * steps).all()


def test_training_with_rounded_weights():
    torch.manual_seed(0)
    model = nn.Sequential(q.QuantStub(), nn.Linear(4, 4), q.DeQuantStub())
    model.qconfig = q.get_default_qat_qconfig()
    trained = q.prepare_qat(model.train())
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.5)
    x = torch.randn(64, 4)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = ((trained(x) - 0.3 * x) ** 2).mean()  # within the range that is observed at the start
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    converted = q.convert(trained)
    assert ((converted(x) - trained.eval()(x)).abs().max()) < 0.2


def test_state_dict_of_a_quantized_model():
    _, observed = prepared()
    observed(torch.randn(4, 3, 6, 6))
    first, second = q.convert(observed), q.convert(observed)
    second.fc.scale = 1.0
    second.load_state_dict(first.state_dict())
    assert second.fc.scale == pytest.approx(first.fc.scale)
    assert torch.equal(second.fc.weight(), first.fc.weight())


def test_fusion_folds_batch_normalization():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    model[1].running_mean.normal_()
    x = torch.randn(2, 3, 5, 5)
    fused = q.fuse_modules(model, ["0", "1", "2"])
    assert isinstance(fused[1], nn.Identity)
    torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)
