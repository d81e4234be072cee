"""torch.onnx.utils: the exporter by its older name, and a module's mode while it is written."""

import mica as torch
import pytest
from mica import nn
from mica.onnx import TrainingMode
from mica.onnx.utils import model_signature, select_model_mode_for_export


def test_it_is_the_exporter():
    assert torch.onnx.utils.export is torch.onnx.export
    assert torch.onnx.utils.register_custom_op_symbolic is torch.onnx.register_custom_op_symbolic


@pytest.mark.parametrize("training", [False, True])
def test_a_mode_lasts_for_a_block(training):
    module = nn.Sequential(nn.Dropout(), nn.Linear(2, 2)).train(training)
    for mode, within in ((TrainingMode.EVAL, False), (TrainingMode.TRAINING, True), (TrainingMode.PRESERVE, training)):
        with pytest.raises(ZeroDivisionError), select_model_mode_for_export(module, mode):
            assert module.training is module[0].training is within
            raise ZeroDivisionError
        assert module.training is module[0].training is training
    with select_model_mode_for_export(lambda x: x, TrainingMode.EVAL):
        pass
    wrong = "'mode' should be a torch.onnx.TrainingMode enum"
    with pytest.raises(TypeError, match=wrong), select_model_mode_for_export(module, 0):
        pass


def test_the_signature_is_that_of_forward():
    assert list(model_signature(nn.Linear(2, 2)).parameters) == ["input"]
    assert list(model_signature(lambda a, b: a).parameters) == ["a", "b"]
