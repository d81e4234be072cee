"""prepare_fx, convert_fx and their kin: what is joined, observed and quantized, and that the numbers stay close."""

import copy
import pickle

import mica as torch
import pytest
from mica import nn
from mica.ao import quantization as tq
from mica.ao.quantization.fx.custom_config import ConvertCustomConfig, PrepareCustomConfig
from mica.ao.quantization.quantize_fx import convert_fx, fuse_fx, prepare_fx, prepare_qat_fx
from mica.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        self.conv2, self.pool = nn.Conv2d(4, 4, 1), nn.AdaptiveAvgPool2d(1)
        self.fc, self.sig, self.fc2 = nn.Linear(4, 5), nn.Sigmoid(), nn.Linear(5, 2)

    def forward(self, x):
        x = self.relu(self.bn(self.conv(x)))
        x = F.relu(x + self.conv2(x))
        x = torch.flatten(self.pool(x), 1)
        x = self.sig(F.relu(self.fc(x)))
        x = torch.cat([x, x], 1)[:, :5] * 2
        return self.fc2(x)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def example():
    torch.manual_seed(1)
    return torch.randn(2, 3, 8, 8)


def _quantized(net, mapping, example):
    prepared = prepare_fx(net, mapping, (example,))
    assert torch.allclose(prepared(example), net(example), atol=1e-5)  # observers change nothing
    return convert_fx(prepared)


def _targets(model):
    return [str(node.target) for node in model.graph.nodes if node.op not in ("get_attr", "placeholder", "output")]


def test_layers_become_quantized_ones(net, example):
    made = _quantized(net, tq.get_default_qconfig_mapping("x86"), example)
    kinds = {name: type(module).__module__.split(".")[-2:] for name, module in made.named_children()}
    assert type(made.conv).__name__ == "ConvReLU2d" and "quantized" in kinds["conv"]
    assert "bn" not in kinds and "relu" not in kinds  # joined with conv
    assert made.fc2.weight().is_quantized
    assert "quantized.add_relu" in _targets(made) and "quantized.mul" in _targets(made)
    assert "torch.ops.quantized.add_relu(" in made.code
    assert not any("activation_post_process" in name for name, _ in made.named_modules())
    result = made(example)
    assert result.dtype == torch.float32
    assert (result - net(example)).abs().max() < 0.03  # two steps of the last scale, about 0.012


def test_the_prepared_model_is_observed_where_torch_observes_it(net, example):
    prepared = prepare_fx(net, tq.get_default_qconfig_mapping("x86"), (example,))
    assert sum("activation_post_process" in target for target in _targets(prepared)) == 12
    assert prepared.activation_post_process_4 is prepared.activation_post_process_3  # pooling keeps the scale
    assert isinstance(prepared.activation_post_process_7, tq.FixedQParamsObserver)  # sigmoid
    assert "bn" not in dict(prepared.named_children())


def test_a_prepared_model_can_be_copied(net, example):
    prepared = copy.deepcopy(prepare_fx(net, tq.get_default_qconfig_mapping("x86"), (example,)))
    prepared(example)
    assert convert_fx(prepared)(example).shape == (2, 2)
    assert prepared(example).shape == (2, 2)  # convert left it as it was


def test_a_module_without_a_qconfig_stays_float(net, example):
    mapping = tq.QConfigMapping().set_global(tq.get_default_qconfig("x86")).set_module_name("conv2", None)
    made = _quantized(net, mapping, example)
    assert type(made.conv2) is nn.Conv2d
    assert (made(example) - net(example)).abs().max() < 0.03


def test_by_type_and_by_expression(net, example):
    by_type = tq.QConfigMapping().set_object_type(nn.Linear, tq.get_default_qconfig("x86"))
    made = _quantized(net, by_type, example)
    assert type(made.conv2) is nn.Conv2d and made.fc2.weight().is_quantized
    by_name = tq.QConfigMapping().set_module_name_regex("fc.*", tq.get_default_qconfig("x86"))
    made = _quantized(net, by_name, example)
    assert type(made.conv2) is nn.Conv2d and made.fc.weight().is_quantized and made.fc2.weight().is_quantized


@pytest.mark.parametrize("qconfig", ["default_dynamic_qconfig", "float16_dynamic_qconfig"])
def test_dynamic(net, example, qconfig):
    made = _quantized(net, tq.QConfigMapping().set_global(getattr(tq, qconfig)), example)
    assert type(made.fc2).__module__.endswith("quantized.dynamic")
    assert type(made.conv2) is nn.Conv2d  # torch has no dynamic convolutions here
    assert (made(example) - net(example)).abs().max() < 0.02


def test_fuse_joins_and_keeps_the_numbers(net, example):
    fused = fuse_fx(net)
    assert type(fused.conv).__name__ == "ConvReLU2d" and type(fused.fc).__name__ == "LinearReLU"
    assert torch.allclose(fused(example), net(example), atol=1e-6)


def test_training_with_rounded_numbers(net, example):
    prepared = prepare_qat_fx(net.train(), tq.get_default_qat_qconfig_mapping("x86"), (example,))
    before = prepared.fc2.weight.clone()
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.1)
    prepared(example).sum().backward()
    optimizer.step()
    assert hasattr(prepared.fc2, "weight_fake_quant") and not torch.equal(prepared.fc2.weight, before)
    made = convert_fx(prepared.eval())
    assert made.fc2.weight().is_quantized
    assert (made(example) - prepared(example)).abs().max() < 0.1


def test_quantized_inputs_and_outputs(example):
    net = nn.Sequential(nn.Conv2d(3, 2, 1)).eval()
    config = PrepareCustomConfig().set_input_quantized_indexes([0]).set_output_quantized_indexes([0])
    prepared = prepare_fx(net, tq.get_default_qconfig_mapping("x86"), (example,), config)
    prepared(example)
    made = convert_fx(prepared)
    result = made(torch.quantize_per_tensor(example, 0.05, 128, torch.quint8))
    assert result.is_quantized
    assert (result.dequantize() - net(example)).abs().max() < 0.1


def test_state_dicts_go_from_one_quantized_model_to_another(net, example):
    mapping = tq.get_default_qconfig_mapping("x86")
    first, second = _quantized(net, mapping, example), _quantized(net, mapping, 2 * example)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(example), second(example))


def test_a_mapping_as_a_dictionary():
    qconfig = tq.get_default_qconfig("x86")
    mapping = tq.QConfigMapping().set_global(qconfig).set_object_type(nn.Linear, None).set_module_name("a.b", qconfig)
    again = tq.QConfigMapping.from_dict(mapping.to_dict())
    assert again.to_dict() == mapping.to_dict()
    assert again._find("a.b.c", (nn.Linear,)) is qconfig  # the module around it
    assert again._find("d", (nn.Linear,)) is None


def test_what_was_not_prepared_is_refused(net):
    with pytest.raises(AssertionError, match="produced by prepare_fx"):
        convert_fx(fuse_fx(net))
    with pytest.raises(ValueError, match="QConfigMapping"):
        prepare_fx(net, None, ())


def test_older_paths():
    import mica.nn.intrinsic.quantized
    import mica.nn.quantized.dynamic
    import mica.nn.quantized.functional
    import mica.quantization.quantize_fx as older

    assert older.prepare_fx is prepare_fx
    assert mica.nn.quantized.dynamic.Linear is mica.ao.nn.quantized.dynamic.Linear
    assert mica.nn.intrinsic.quantized.LinearReLU is mica.ao.nn.intrinsic.quantized.LinearReLU
    assert mica.nn.quantized.functional.linear is mica.ao.nn.quantized.functional.linear
    assert pickle.loads(pickle.dumps(torch.ops.quantized.add)) is torch.ops.quantized.add


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x)


class Observed(Own):
    @classmethod
    def from_float(cls, module):
        made = cls()
        made.linear, made.qconfig = module.linear, module.qconfig
        return made


class Quantized(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x):
        assert x.is_quantized
        return self.linear(x)

    @classmethod
    def from_observed(cls, module):
        module.linear.qconfig = module.qconfig
        module.linear.activation_post_process = module.activation_post_process
        return cls(torch.ao.nn.quantized.Linear.from_float(module.linear))


def test_modules_of_the_program_are_observed_and_quantized():
    model = nn.Sequential(nn.Linear(3, 3), Own()).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_((torch.arange(p.numel(), dtype=torch.float32) * 0.37 % 1 - 0.4).reshape(p.shape))
    x = torch.tensor([[1.0, 2, -1], [0.5, -0.3, 2]])
    before = PrepareCustomConfig().set_float_to_observed_mapping(Own, Observed)
    after = ConvertCustomConfig().set_observed_to_quantized_mapping(Observed, Quantized)
    mapping = tq.QConfigMapping().set_global(tq.default_qconfig)
    for configs in ((before, after), (before.to_dict(), after.to_dict())):
        prepared = prepare_fx(model, mapping, (x,), configs[0])
        assert type(prepared.get_submodule("1")) is Observed and torch.equal(prepared(x), model(x))
        made = convert_fx(prepared, configs[1])
        assert type(made.get_submodule("1")) is Quantized
        # Recorded from torch 2.13.
        expected = [[0.08522789, 0.25568369, 0.42613947], [-0.00946977, 0.57765573, 1.18372083]]
        assert torch.allclose(made(x), torch.tensor(expected), atol=1e-7)
    assert isinstance(model[1], Own)  # the program's model stays as it was
    left = prepare_fx(model, tq.QConfigMapping(), (x,), before)
    assert type(left.get_submodule("1")) is Own  # nothing asks for its quantization


def test_kinds_of_quantization_that_modules_of_the_program_do_not_have():
    assert tq.quant_type_to_str(tq.QuantType.WEIGHT_ONLY) == "weight_only"
    with pytest.raises(ValueError, match="only supported for static quantization"):
        PrepareCustomConfig().set_float_to_observed_mapping(Own, Observed, tq.QuantType.DYNAMIC)
    with pytest.raises(ValueError, match="Unknown QuantType name 'some'"):
        PrepareCustomConfig.from_dict({"float_to_observed_custom_module_class": {"some": {Own: Observed}}})
    with pytest.raises(NotImplementedError, match="_equalization_config"):
        prepare_fx(Own(), tq.QConfigMapping(), (), _equalization_config=tq.QConfigMapping())
