"""torch.ao.quantization.backend_config: what backends can quantize, and that prepare_fx and convert_fx heed it."""

import copy
import json
import operator
from pathlib import Path

import backend_config_cases as cases
import mica as torch
import pytest
from mica import nn
from mica.ao import quantization as tq
from mica.ao.nn.quantized import reference as nnqr
from mica.ao.quantization import backend_config as bc
from mica.ao.quantization.backend_config import utils
from mica.ao.quantization.quantize_fx import convert_fx, convert_to_reference_fx, fuse_fx, prepare_fx

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "backend_configs.json").read_text())
WEIGHTED = bc.DTypeConfig(torch.quint8, torch.quint8, torch.qint8, torch.float32)
PLAIN = bc.DTypeConfig(torch.quint8, torch.quint8)


@pytest.mark.parametrize("name", cases.BACKENDS)
def test_tables_are_torchs(name):
    assert json.loads(json.dumps(cases.table(torch, name))) == RECORDED["tables"][name]


# Numbers that lie halfway between two integers are rounded to either: there, results differ by one step of the scale.
ONE_STEP = {"differences": 0.0103, "differences that share": 0.0103}


def _same(name, ours, theirs):
    step = ONE_STEP.get(name, 1e-5)
    assert ours["quantized"] == pytest.approx(theirs["quantized"], abs=step)
    assert ours["reference"] == pytest.approx(theirs["reference"], abs=step)


@pytest.mark.parametrize("name", cases.FLOWS)
def test_models_are_quantized_as_the_configuration_says(name):
    ours, theirs = cases.flow(torch, name), RECORDED["flows"][name]
    _same(name, ours, theirs)
    if cases.FLOWS[name][2] == "static":
        assert ours["observers"] == theirs["observers"]


@pytest.mark.parametrize("name", cases.TRAINED)
def test_trained_models_too(name):
    _same(name, cases.flow(torch, name, trained=True), RECORDED["trained"][name])


def _prepared(model, x, config):
    made = prepare_fx(model.eval(), tq.get_default_qconfig_mapping("qnnpack"), (x,), backend_config=config)
    made(x)
    return made


def test_a_chain_is_joined_by_the_configurations_function():
    class LinearTanh(nn.Sequential):
        pass

    def join(is_qat, linear, tanh):
        assert not is_qat and type(linear) is nn.Linear and type(tanh) is nn.Tanh
        return LinearTanh(linear, tanh)

    pattern = bc.BackendPatternConfig((nn.Linear, nn.Tanh)).set_fuser_method(join).set_fused_module(LinearTanh)
    config = bc.BackendConfig("own").set_backend_pattern_config(pattern.add_dtype_config(WEIGHTED))
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.ReLU()).eval(), torch.rand(2, 3)
    joined = fuse_fx(model, backend_config=config)
    kinds = [type(joined.get_submodule(n.target)).__name__ for n in joined.graph.nodes if n.op == "call_module"]
    assert kinds == ["LinearTanh", "Linear", "ReLU"]  # the relu is not joined: the configuration says nothing of it
    assert torch.equal(joined(x), model(x))


def test_functions_that_join():
    from mica.ao.quantization.fuser_method_mappings import fuse_conv_bn, get_fuser_method

    assert get_fuser_method([nn.Conv2d, nn.BatchNorm2d]) is fuse_conv_bn
    pattern = bc.BackendPatternConfig((nn.Conv2d, nn.BatchNorm2d)).set_fuser_method(fuse_conv_bn)
    model, x = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval(), torch.rand(1, 1, 2, 2)
    joined = fuse_fx(model, backend_config=bc.BackendConfig().set_backend_pattern_config(pattern))
    assert [n.target for n in joined.graph.nodes if n.op == "call_module"] == ["0"]
    torch.testing.assert_close(joined(x), model(x))


def test_a_reference_form_of_the_programs_own():
    class Rounded(nnqr.Linear):
        pass

    pattern = bc.BackendPatternConfig(nn.Linear).add_dtype_config(WEIGHTED).set_root_module(nn.Linear)
    config = bc.BackendConfig("own").set_backend_pattern_config(pattern.set_reference_quantized_module(Rounded))
    model, x = nn.Sequential(nn.Linear(3, 3)), torch.rand(2, 3)
    made = convert_fx(_prepared(model, x, config), backend_config=config)
    layer = made.get_submodule("0")
    assert type(layer) is Rounded and layer.weight_dtype == torch.qint8
    torch.testing.assert_close(made(x), model(x), atol=0.05, rtol=0)


def test_modules_of_the_program_are_computed_between_roundings():
    class Twice(nn.Module):
        def forward(self, x, y):
            return x * 2 + y

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.twice = Twice()

        def forward(self, x):
            return self.twice(x, x + 1)

    config = bc.BackendConfig("own").set_backend_pattern_configs(
        [bc.BackendPatternConfig(each).add_dtype_config(PLAIN) for each in (Twice, operator.add)]
    )
    mapping, x = tq.get_default_qconfig_mapping("qnnpack"), torch.rand(4, 3)
    own = tq.fx.custom_config.PrepareCustomConfig().set_non_traceable_module_classes([Twice])
    made = prepare_fx(Net().eval(), mapping, (x,), prepare_custom_config=own, backend_config=config)
    made(x)
    quantized = convert_fx(made, backend_config=config)
    assert [n.target for n in quantized.graph.nodes if n.op == "call_method"].count("dequantize") >= 2
    torch.testing.assert_close(quantized(x), Net()(x), atol=0.05, rtol=0)


def test_reference_models():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)).eval()
    x = torch.rand(2, 3, 2, 2)
    made = prepare_fx(model, tq.get_default_qconfig_mapping("qnnpack"), (x,))
    made(x)
    reference, quantized = convert_to_reference_fx(copy.deepcopy(made)), convert_fx(made)
    assert type(reference.get_submodule("0")[0]) is nnqr.Conv2d and type(reference.get_submodule("3")) is nnqr.Linear
    torch.testing.assert_close(reference(x), quantized(x), atol=0.02, rtol=0)


@pytest.mark.parametrize("qconfig", [tq.default_dynamic_qconfig, tq.float16_dynamic_qconfig])
def test_reference_models_with_scales_of_each_call(qconfig):
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval(), torch.rand(5, 4)
    made = prepare_fx(model, tq.QConfigMapping().set_global(qconfig), (x,))
    reference, quantized = convert_to_reference_fx(made), convert_fx(made)
    assert type(reference.get_submodule("0")[0]) is nnqr.Linear
    torch.testing.assert_close(reference(x), quantized(x), atol=0.01, rtol=0)
    recurrent = prepare_fx(nn.Sequential(nn.LSTM(4, 3)).eval(), tq.QConfigMapping().set_global(qconfig), (x,))
    with pytest.raises(NotImplementedError, match="LSTM has no reference form with scales of each call"):
        convert_to_reference_fx(recurrent)


def test_dictionaries_go_both_ways():
    made = bc.BackendConfig.from_dict(bc.get_native_backend_config_dict())
    assert made.name == "native" and len(made.configs) == len(bc.get_native_backend_config().configs)
    pattern = bc.BackendPatternConfig((nn.Linear, nn.ReLU)).add_dtype_config(WEIGHTED).set_fused_module(nn.Identity)
    again = bc.BackendPatternConfig.from_dict(pattern.to_dict())
    assert again.to_dict() == pattern.to_dict() and again.fused_module is nn.Identity
    assert bc.DTypeConfig.from_dict(WEIGHTED.to_dict()) == WEIGHTED and WEIGHTED.weight_dtype == torch.qint8
    x = torch.rand(2, 3)
    _prepared(nn.Sequential(nn.Linear(3, 3)), x, bc.get_native_backend_config_dict())(x)


def test_texts():
    pattern = bc.BackendPatternConfig(nn.ReLU).set_fused_module(nn.Identity)
    kept = {
        "pattern": nn.ReLU, "observation_type": bc.ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT,
        "fused_module": nn.Identity,
    }  # fmt: skip
    assert repr(pattern) == f"BackendPatternConfig({kept})"
    config = bc.BackendConfig("own").set_backend_pattern_config(pattern)
    kept = {"name": "own", "_pattern_complex_format_to_config": {nn.ReLU: pattern}}
    assert repr(config) == f"BackendConfig({kept})"


def test_answers():
    native = bc.get_native_backend_config()
    assert utils.get_root_module_to_quantized_reference_module(native)[nn.Linear] is nnqr.Linear
    assert utils.get_module_to_qat_module(native)[nn.Conv2d] is torch.ao.nn.qat.Conv2d
    assert torch.ao.nn.intrinsic.ConvReLU2d in utils.get_fused_module_classes(native)
    assert torch.ao.nn.qat.Linear in utils.get_qat_module_classes(native)
    assert utils.get_pattern_to_dtype_configs(native)[nn.ReLU, nn.Conv2d] == [WEIGHTED]
    assert utils.get_pattern_to_input_type_to_index(native)[nn.functional.linear] == {"weight": 1, "bias": 2}


def test_refusals():
    pattern = bc.BackendPatternConfig
    with pytest.raises(ValueError, match="Only one of 'pattern' or 'pattern_complex_format' can be set"):
        pattern(nn.ReLU)._set_pattern_complex_format(nn.ReLU)
    with pytest.raises(ValueError, match="Either 'pattern' or 'pattern_complex_format' must be specified"):
        bc.BackendConfig().set_backend_pattern_config(pattern())
    with pytest.raises(ValueError, match="Expected a tuple with 2 or 3 elements"):
        bc.BackendConfig().set_backend_pattern_config(pattern((1, 2, 3, 4)))
    with pytest.raises(ValueError, match="Expected a list of DTypeConfigs"):
        pattern.from_dict({"dtype_configs": [3]})
    with pytest.raises(ValueError, match="Expected backend_config_dict"):
        bc.BackendConfig.from_dict({"configs": [3]})
    with pytest.raises(ValueError, match="Expected input_dtype to be a torch.dtype or DTypeWithConstraints"):
        bc.DTypeConfig.from_dict({"input_dtype": 3})
    with pytest.raises(ValueError, match="a BackendConfig was expected, got str"):
        prepare_fx(nn.ReLU(), tq.QConfigMapping(), (), backend_config="x86")
    branches = pattern()._set_pattern_complex_format((torch.add, nn.Conv2d, nn.ReLU)).set_fuser_method(len)
    with pytest.raises(NotImplementedError, match="has branches"):
        fuse_fx(nn.ReLU(), backend_config=bc.BackendConfig().set_backend_pattern_config(branches))
