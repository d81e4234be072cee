"""Layers joined with what follows them, and layers that are trained with rounded weights."""

import mica as torch
import pytest
from mica import nn
from mica.ao import quantization as q
from mica.ao.nn import intrinsic, qat
from mica.ao.nn.intrinsic import quantized as joined


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.again, self.relu2 = nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()
        self.norm, self.relu3 = nn.BatchNorm2d(4), nn.ReLU()
        self.head, self.relu4 = nn.Linear(4, 5), nn.ReLU()

    def forward(self, x):
        x = self.relu(self.bn(self.conv(self.quant(x))))
        x = self.relu3(self.norm(self.relu2(self.again(x))))
        return self.dequant(self.relu4(self.head(x.mean((2, 3)))))


GROUPS = [["conv", "bn", "relu"], ["again", "relu2"], ["norm", "relu3"], ["head", "relu4"]]


def test_joined_layers_compute_the_same():
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)
    model.bn.running_mean.normal_()
    fused = q.fuse_modules(model, GROUPS)
    torch.testing.assert_close(fused(x), model(x))
    kinds = [intrinsic.ConvReLU2d, intrinsic.ConvReLU2d, intrinsic.BNReLU2d, intrinsic.LinearReLU]
    assert [type(getattr(fused, names[0])) for names in GROUPS] == kinds
    assert type(fused.bn) is type(fused.relu) is nn.Identity and isinstance(model.bn, nn.BatchNorm2d)


def test_joined_layers_are_quantized_as_one():
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)
    fused = q.fuse_modules(model, GROUPS)
    fused.qconfig = q.get_default_qconfig()
    prepared = q.prepare(fused)
    prepared(x)
    assert hasattr(prepared.conv, "activation_post_process") and not hasattr(
        prepared.conv[0], "activation_post_process"
    )
    small = q.convert(prepared)
    kinds = [joined.ConvReLU2d, joined.ConvReLU2d, joined.BNReLU2d, joined.LinearReLU]
    assert [type(getattr(small, names[0])) for names in GROUPS] == kinds
    assert (small.conv(small.quant(x)).dequantize() >= 0).all()
    assert (small(x) - model(x)).abs().max() < 0.05 * model(x).abs().max() + 0.02


def test_other_activations():
    for kind, activation, name in (
        (intrinsic.LinearLeakyReLU, nn.LeakyReLU(0.2), "LinearLeakyReLU"),
        (intrinsic.LinearTanh, nn.Tanh(), "LinearTanh"),
    ):
        model = nn.Sequential(q.QuantStub(), kind(nn.Linear(4, 3), activation), q.DeQuantStub()).eval()
        model.qconfig = q.get_default_qconfig()
        x = torch.randn(6, 4)
        prepared = q.prepare(model)
        prepared(x)
        small = q.convert(prepared)
        assert type(small[1]) is getattr(joined, name) and (small(x) - model(x)).abs().max() < 0.05


def test_folding_by_hand():
    for d in (1, 2, 3):
        conv, bn = getattr(nn, f"ConvTranspose{d}d")(2, 3, 2).eval(), getattr(nn, f"BatchNorm{d}d")(3).eval()
        bn.running_var.uniform_(0.5, 2)
        x = torch.randn(2, 2, *[4] * d)
        torch.testing.assert_close(q.fuse_convtranspose_bn(False, conv, bn)(x), bn(conv(x)), rtol=1e-4, atol=1e-5)
    linear, bn, x = nn.Linear(3, 4).eval(), nn.BatchNorm1d(4).eval(), torch.randn(5, 3)
    bn.running_mean.normal_()
    torch.testing.assert_close(q.fuse_linear_bn(False, linear, bn)(x), bn(linear(x)))
    assert q.get_fuser_method((nn.Conv2d, nn.BatchNorm2d)) is q.fuse_conv_bn
    with pytest.raises(AssertionError, match="did not find fuser method for"):
        q.fuse_modules(nn.Sequential(nn.ReLU(), nn.ReLU()), ["0", "1"])
    with pytest.raises(AssertionError, match="Incorrect types for input modules: Linear and Tanh"):
        intrinsic.LinearReLU(nn.Linear(2, 2), nn.Tanh())


def test_training_with_rounded_weights():
    model = q.fuse_modules_qat(Net().train(), GROUPS)
    model.qconfig = q.get_default_qat_qconfig()
    trained = q.prepare_qat(model)
    assert type(trained.conv) is intrinsic.qat.ConvBnReLU2d and type(trained.head) is intrinsic.qat.LinearReLU
    optimizer = torch.optim.SGD(trained.parameters(), 0.05)
    x, target = torch.randn(4, 3, 8, 8), torch.rand(4, 5)
    losses = []
    for _ in range(12):
        loss = (trained(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    trained.eval()
    with torch.no_grad():
        for _ in range(500):  # the moving averages come to the ranges that the trained weights give
            trained(x)
    small = q.convert(trained)
    assert type(small.conv) is joined.ConvReLU2d
    assert (small(x) - trained(x)).abs().max() < 0.05 * trained(x).abs().max() + 0.02


def test_trained_layers_of_their_own():
    config = q.get_default_qat_qconfig()
    for kind, options, x in (
        (qat.Linear, (4, 3), torch.randn(2, 4)),
        (qat.Conv1d, (2, 3, 2), torch.randn(1, 2, 5)),
        (qat.Conv2d, (2, 3, 2), torch.randn(1, 2, 5, 5)),
        (qat.Conv3d, (2, 3, 2), torch.randn(1, 2, 3, 3, 3)),
        (qat.Embedding, (5, 3), torch.tensor([1, 4])),
        (qat.EmbeddingBag, (5, 3), torch.tensor([[1, 4]])),
    ):
        layer = kind(*options, qconfig=config)
        plain = getattr(nn, kind.__name__)(*options)
        plain.weight = layer.weight
        if getattr(layer, "bias", None) is not None:
            plain.bias = layer.bias
        difference = (layer(x) - plain(x)).abs().max()
        assert 0 < difference < 0.1
        layer(x).sum().backward()
        assert layer.weight.grad.any()
        assert type(layer.to_float()) is type(plain) and torch.equal(layer.to_float()(x), plain(x))
    with pytest.raises(AssertionError, match="qconfig must be provided"):
        qat.Linear(2, 2)
    plain = nn.Linear(4, 3)
    plain.qconfig = config
    assert qat.Linear.from_float(plain).weight is plain.weight


@pytest.mark.parametrize(
    ("with_relu", "scale", "zero_point", "first"),
    [
        (False, 0.03339095413684845, 53, [30, 66, 51, 103, 70, 48, 39, 111, 60, 111, 126, 45]),
        (True, 0.0193867739289999, 0, [0, 23, 0, 87, 29, 0, 0, 101, 12, 100, 127, 0]),
    ],
    ids=["add", "add and relu"],
)
def test_a_convolution_and_a_sum_are_rounded_once(with_relu, scale, zero_point, first):
    """The numbers are torch's, of its engine onednn."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, conv = q.QuantStub(), q.QuantStub(), nn.Conv2d(2, 3, 3, padding=1)
            more = (torch.add, nn.ReLU()) if with_relu else (torch.add,)
            self.joined = (intrinsic.ConvAddReLU2d if with_relu else intrinsic.ConvAdd2d)(conv, *more)

        def forward(self, x, y):
            return self.joined(self.a(x), self.b(y))

    torch.manual_seed(0)
    model = Net().eval()
    model.qconfig = q.default_qconfig
    observed = q.prepare(model)
    x, y = torch.randn(1, 2, 4, 4), torch.randn(1, 3, 4, 4)
    observed(x, y)
    converted = q.convert(observed)
    got = converted(x, y)
    assert repr(converted.joined).startswith("QuantizedConvAddReLU2d(" if with_relu else "QuantizedConvAdd2d(")
    assert got.q_scale() == pytest.approx(scale, rel=1e-6) and got.q_zero_point() == zero_point
    assert got.int_repr().reshape(-1)[:12].tolist() == first
