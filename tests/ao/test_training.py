"""Training with rounded weights, and which weights a dynamic model has: the numbers are torch 2.13's."""

import mica as torch
import pytest
from mica import nn
from mica.ao import quantization as q
from mica.ao.nn.quantized import dynamic
from mica.backends import quantized as engines


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.l, self.d = q.QuantStub(), nn.Linear(2, 3), q.DeQuantStub()

    def forward(self, x):
        return self.d(self.l(self.q(x)))


def test_a_model_that_is_trained_for_quantization():
    torch.manual_seed(0)
    model = Wrapped().train()
    model.qconfig = q.get_default_qat_qconfig("fbgemm")
    model = q.prepare_qat(model)
    # The layers are drawn again, as torch does, so that the examples are the same.
    x = torch.randn(4, 2)
    expected = torch.tensor(
        [[0.3894, 0.1530, 0.2086], [0.3060, -0.1252, -0.0139], [-0.3060, 1.4603, 0.0139], [0.1252, 0.9318, 0.2642]]
    )
    torch.testing.assert_close(model(x), expected, atol=1e-4, rtol=0)
    rounding = model.l.weight_fake_quant
    torch.testing.assert_close(rounding.scale, torch.tensor([0.0030, 0.0023, 0.0021]), atol=1e-4, rtol=0)
    assert rounding.zero_point.tolist() == [0, 127, 0]  # both weights of the second row are negative
    names = [n for n, _ in model.l.named_children()]
    assert names == ["weight_fake_quant", "activation_post_process"]
    assert "quant_min=0, quant_max=127, qscheme=torch.per_tensor_affine, reduce_range=True" in str(model.q)
    torch.testing.assert_close(q.convert(model.eval())(x), expected, atol=1e-4, rtol=0)


def test_only_models_that_train():
    model = Wrapped().eval()
    model.qconfig = q.get_default_qat_qconfig("fbgemm")
    with pytest.raises(AssertionError, match="prepare_qat only works on models in training mode"):
        q.prepare_qat(model)


@pytest.mark.parametrize(
    "low, high, symmetric, scale, zero_point",
    [
        (-1.0, 0.5, True, 1 / 128, 0),
        (-0.5, 1.0, True, 1 / 127, 0),
        (-1.0, -0.5, True, 1 / 255, 127),
        (0.25, 1.0, True, 1 / 255, -128),
        (-1.0, 3.0, False, 4 / 255, -64),
        (0.0, 0.0, True, 0.1, 127),
        (-1e-6, 2e-6, False, 6.1e-5, -43),
    ],
)
def test_parameters_of_fused_rounding(low, high, symmetric, scale, zero_point):
    scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
    rounding = q.FusedMovingAvgObsFakeQuantize(quant_min=-128, quant_max=127, dtype=torch.qint8, qscheme=scheme)
    rounding(torch.tensor([low, high]))
    torch.testing.assert_close(rounding.scale, torch.tensor([scale]))
    assert rounding.zero_point.tolist() == [zero_point]


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 2), nn.Sequential(nn.Linear(2, 2)))


def kinds(model):
    layers = (nn.Linear, dynamic.Linear)
    return [(n, type(m) is dynamic.Linear) for n, m in model.named_modules() if isinstance(m, layers)]


def test_the_scale_of_dynamic_weights():
    layer = nn.Linear(4, 4)
    weight = q.quantize_dynamic(nn.Sequential(layer), {nn.Linear})[0].weight()
    assert weight.q_scale() == pytest.approx(float(layer.weight.abs().max()) / 127.5)


def test_a_dynamic_model_by_its_parts_qconfigs():
    given = {"a": q.per_channel_dynamic_qconfig, "b.0": q.float16_dynamic_qconfig}
    model = q.quantize_dynamic(Parts(), given)
    assert model.a.weight().qscheme() == torch.per_channel_affine
    assert model.b[0].weight().dtype == torch.float16
    assert type(model.b[1][0]) is nn.Linear
    model = q.quantize_dynamic(Parts(), {"b"})  # a part's layers, however deep
    assert kinds(model) == [("a", False), ("b.0", True), ("b.1.0", True)]
    assert not any(hasattr(m, "qconfig") for m in model.modules())
    model = Parts()
    model.b[0].qconfig = None  # the module's own qconfig wins
    assert kinds(q.quantize_dynamic(model, {nn.Linear})) == [("a", True), ("b.0", False), ("b.1.0", True)]


def test_engines_have_names():
    before = engines.engine
    try:
        for name in engines.supported_engines:
            engines.engine = name
            assert engines.engine == name
        with pytest.raises(RuntimeError, match="foo is not a valid value for quantized engine"):
            engines.engine = "foo"
    finally:
        engines.engine = before
    assert {"fbgemm", "qnnpack"} <= set(engines.supported_engines)


def test_layers_for_dynamic_quantization_want_an_observer_without_memory():
    from mica.nn.qat.dynamic import Linear

    remembers = q.get_default_qat_qconfig("fbgemm")
    fresh = q.QConfig(activation=q.MovingAverageMinMaxObserver.with_args(averaging_constant=1), weight=remembers.weight)
    with pytest.raises(ValueError, match="Dynamic QAT requires a memoryless observer"):
        Linear(3, 2, qconfig=remembers)
    layer = nn.Linear(3, 2)
    layer.qconfig = remembers
    with pytest.raises(ValueError, match="Dynamic QAT requires a memoryless observer"):
        Linear.from_float(layer)
    layer.qconfig = fresh
    trained, x = Linear.from_float(layer), torch.randn(4, 3)
    expected = nn.functional.linear(x, trained.weight_fake_quant(layer.weight), layer.bias)
    assert torch.equal(trained(x), expected) and Linear(3, 2, qconfig=fresh).qconfig is fresh
    trained(x).sum().backward()
    assert layer.weight.grad is not None  # the parameter is the same
