"""Joined layers in training: batch normalization is trained with the layer. The numbers are torch 2.13's."""

import mica as torch
import pytest
from mica import nn
from mica.ao import quantization as q
from mica.ao.nn import intrinsic, quantized
from mica.ao.nn.intrinsic import qat
from mica.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

GROUPS = [["conv", "bn", "relu"], ["conv2", "bn2"], ["conv3", "relu3"], ["fc", "relu4"], ["fc2", "bn5"]]


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()
        self.conv2, self.bn2 = nn.Conv2d(4, 3, 2), nn.BatchNorm2d(3)
        self.conv3, self.relu3 = nn.Conv2d(3, 3, 1), nn.ReLU()
        self.fc, self.relu4 = nn.Linear(3, 5), nn.ReLU()
        self.fc2, self.bn5 = nn.Linear(5, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        x = self.bn2(self.conv2(self.relu(self.bn(self.conv(x)))))
        return torch.flatten(self.relu3(self.conv3(x)), 1)


class Whole(Convolutions):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()

    def forward(self, x):
        x = self.bn2(self.conv2(self.relu(self.bn(self.conv(self.quant(x))))))
        x = self.relu3(self.conv3(x))[:, :, 0, 0]
        return self.dequant(self.bn5(self.fc2(self.relu4(self.fc(x)))))


def filled(model):
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            values = (torch.arange(p.numel(), dtype=torch.float32) * 0.37 + i * 0.13) % 1 - 0.4
            p.copy_(values.reshape(p.shape))
    return model.train()


def steps(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        y = model(X)
        loss = (y**2).mean() + y.sum() * 0.1
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


X = ((torch.arange(4 * 2 * 6 * 6, dtype=torch.float32) * 0.61) % 3 - 1).reshape(4, 2, 6, 6)
CONFIG = q.get_default_qat_qconfig("fbgemm")


def test_batch_normalization_is_trained_with_the_layer():
    torch.manual_seed(0)
    model = q.fuse_modules_qat(filled(Whole()), GROUPS)
    assert type(model.conv) is intrinsic.ConvBnReLU2d and type(model.fc2) is intrinsic.LinearBn1d
    model.qconfig = CONFIG
    trained = q.prepare_qat(model)
    kinds = (qat.ConvBnReLU2d, qat.ConvBn2d, qat.ConvReLU2d, qat.LinearReLU, qat.LinearBn1d)
    layers = (trained.conv, trained.conv2, trained.conv3, trained.fc, trained.fc2)
    assert all(type(layer) is kind for layer, kind in zip(layers, kinds, strict=True))
    assert steps(trained) == pytest.approx([0.56692, 0.51261, 0.44244], abs=2e-5)
    mean = trained.conv.bn.running_mean.tolist()
    assert mean == pytest.approx([0.19129, 0.30376, 0.1565, 0.27978], abs=2e-5)
    small = q.convert(trained.eval())
    assert type(small.conv) is intrinsic.quantized.ConvReLU2d and type(small.conv2) is quantized.Conv2d
    assert type(small.fc) is intrinsic.quantized.LinearReLU and type(small.fc2) is quantized.Linear
    # The scales of weights are those that the training has seen.
    assert small.conv.weight().int_repr().flatten().tolist()[:9] == [88, 7, -75, 64, -18, -99, 39, -42, -123]
    assert small.fc.weight().int_repr().flatten().tolist()[:6] == [-58, 35, 127, -40, 84, -126]
    assert small.fc.weight().q_per_channel_scales()[0].item() == pytest.approx(0.00399967, abs=1e-8)
    assert trained(X)[0].tolist() == pytest.approx([0.4228, -0.4476, 0.087, 0.5222], abs=1e-4)
    assert (small(X) - trained(X)).abs().max() < 0.02


def test_the_same_in_a_traced_model():
    prepared = prepare_qat_fx(filled(Convolutions()), q.get_default_qat_qconfig_mapping("fbgemm"), (X,))
    assert type(prepared.conv) is qat.ConvBnReLU2d and type(prepared.conv2) is qat.ConvBn2d
    assert steps(prepared) == pytest.approx([1.29074, 0.19846, 0.00805], abs=2e-5)
    small = convert_fx(prepared.eval())
    assert type(small.conv) is intrinsic.quantized.ConvReLU2d and type(small.conv2) is quantized.Conv2d
    assert torch.isfinite(small(X)).all()


@pytest.mark.parametrize("d", [1, 2, 3])
def test_folding_gives_the_layer_in_use(d):
    x = torch.randn(2, 2, *[5] * d)
    for name in (f"ConvBn{d}d", f"ConvBnReLU{d}d"):
        layer = getattr(qat, name)(2, 3, 3, bias=True, qconfig=q.default_qat_qconfig)
        layer.bn.running_mean.normal_()
        layer.bn.running_var.uniform_(0.5, 2)
        layer.weight_fake_quant = nn.Identity()
        layer.eval()
        folded = layer.to_float().eval()
        assert type(folded) is (nn, intrinsic)["ReLU" in name].__dict__[name.replace("Bn", "")]
        torch.testing.assert_close(folded(x), layer(x), rtol=1e-4, atol=1e-5)


def test_statistics_are_frozen_and_freed():
    layer = qat.ConvBn2d(2, 3, 3, qconfig=CONFIG)
    assert list(dict(layer.named_parameters())) == ["weight", "bn.weight", "bn.bias"]
    assert list(layer._modules) == ["bn", "weight_fake_quant"]
    layer.apply(qat.freeze_bn_stats)
    before = layer.bn.running_mean.clone()
    layer.train()
    layer(torch.randn(2, 2, 4, 4))
    assert not layer.bn.training and layer.bn.running_mean.equal(before)
    layer.apply(qat.update_bn_stats)
    layer(torch.randn(2, 2, 4, 4))
    assert layer.bn.training and not layer.bn.running_mean.equal(before)


def test_what_cannot_be_trained_as_one():
    with pytest.raises(AssertionError, match="qconfig must be provided for QAT module"):
        qat.ConvBn2d(2, 3, 3)
    with pytest.raises(AssertionError, match="affine set to True"):
        q.fuse_conv_bn(True, nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, affine=False))
    with pytest.raises(AssertionError, match="must match num_features"):
        q.fuse_conv_bn(True, nn.Conv2d(2, 3, 1), nn.BatchNorm2d(4))
    assert nn.intrinsic.qat.ConvBn2d is qat.ConvBn2d
