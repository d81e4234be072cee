"""torch.onnx.verification and testing: exported models give the numbers of their modules."""

import mica as torch
import pytest
from mica import nn

onnx = pytest.importorskip("onnx", reason="the package onnx writes the files")
pytest.importorskip("onnx.reference", reason="the package onnx evaluates the models")


def exported(model):
    torch.manual_seed(0)
    return torch.onnx.export(model, (torch.randn(2, 3),), dynamic_axes={"input": {0: "n"}}, input_names=["input"])


def test_a_model_is_compared_with_its_module():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).train()
    program = exported(model)
    torch.onnx.testing.assert_onnx_program(program, backend="reference")
    torch.onnx.testing.assert_onnx_program(program, args=(torch.randn(5, 3),), backend="reference")
    assert model.training
    with torch.no_grad():
        model[0].bias += 1  # the file keeps what it was exported with
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        torch.onnx.testing.assert_onnx_program(program, backend="reference")
    with pytest.raises(ValueError, match="Unsupported backend 'none'"):
        torch.onnx.testing.assert_onnx_program(program, backend="none")


def test_differences_are_counted_by_size():
    info = torch.onnx.verification.VerificationInfo.from_tensors(
        "y", torch.tensor([1.0, 2.0, 0.0]), torch.tensor([1.0, 2.5, 0.0])
    )
    assert info.max_abs_diff == 0.5 and info.max_rel_diff == pytest.approx(0.25)
    assert info.abs_diff_hist[0].tolist() == [2, 0, 0, 0, 0, 0, 1, 0, 0]
    plain = info.asdict()
    assert plain["name"] == "y" and plain["expected_dtype"] == "torch.float32" and plain["abs_diff_hist"][0][0] == 2


def test_verification_runs_the_model():
    pytest.importorskip("onnxruntime", reason="verify_onnx_program runs the model with it")
    (info,) = torch.onnx.verification.verify_onnx_program(exported(nn.Linear(3, 2)))
    assert info.name == "output_0" and info.max_abs_diff < 1e-6


def test_an_operation_that_is_not_written_is_named():
    class Rare(nn.Module):
        def forward(self, x):
            return torch.special.airy_ai(x)

    with pytest.raises(torch.onnx.errors.UnsupportedOperatorError, match="Exporting the operator 'airy_ai' to ONNX"):
        exported(Rare())
    assert issubclass(torch.onnx.errors.UnsupportedOperatorError, torch.onnx.OnnxExporterError)
