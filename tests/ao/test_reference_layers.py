"""torch.ao.nn.quantized.reference: float layers with rounded weights."""

import json
from pathlib import Path

import mica as torch
import pytest
import reference_cases as cases
from mica import nn
from mica.ao.nn.quantized import reference as nnqr

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "reference_layers.json").read_text())
ROWS = {"qscheme": torch.per_tensor_affine, "dtype": torch.qint8, "scale": 0.5, "zero_point": 0}


def _same(ours, theirs):
    assert (ours["text"], ours["keys"]) == (theirs["text"], theirs["keys"])
    assert ours["values"] == pytest.approx(theirs["values"], abs=1e-5)


@pytest.mark.parametrize("name", cases.LAYERS)
@pytest.mark.parametrize("way", cases.WAYS)
def test_layers_compute_as_torchs(name, way):
    _same(cases.layer_result(torch, name, way), RECORDED["layers"][f"{name} {way}"])


@pytest.mark.parametrize("name", cases.RECURRENT)
def test_recurrent_layers_compute_as_torchs(name):
    _same(cases.recurrent_result(torch, name), RECORDED["recurrent"][name])


@pytest.mark.parametrize("name", cases.LAYERS)
def test_a_state_dict_brings_its_scheme(name):
    saved, x = cases.layer(torch, name, "rows")
    other, _ = cases.layer(torch, name, "tensor")
    other.load_state_dict(saved.state_dict())
    assert other.weight_qscheme == torch.per_channel_affine
    assert torch.equal(other(x), saved(x))


def test_weights():
    made = nnqr.Linear.from_float(nn.Linear(3, 2), ROWS)
    assert made.get_quantized_weight().q_scale() == 0.5
    assert torch.equal(made.get_weight(), made.get_quantized_weight().dequantize())
    assert set((made.get_weight() * 2).round().reshape(-1).tolist()) <= {-1.0, 0.0, 1.0}


def test_what_torchs_drop_is_kept():
    around = nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect")
    x = torch.rand(1, 1, 4, 4)
    fine = {**ROWS, "scale": 0.001, "dtype": torch.qint32}
    made = nnqr.Conv2d.from_float(around, fine)
    torch.testing.assert_close(made(x), around(x), atol=0.02, rtol=0)
    projected = nn.LSTM(3, 4, proj_size=2)
    names = [name for name, _ in projected.named_parameters() if name.startswith("weight")]
    made = nnqr.LSTM.from_float(projected, dict.fromkeys(names, fine))
    x = torch.rand(5, 2, 3)
    torch.testing.assert_close(made(x)[0], projected(x)[0], atol=0.02, rtol=0)


def test_refusals():
    with pytest.raises(AssertionError, match=r"qscheme: torch.per_tensor_symmetric is not supported"):
        nnqr.Linear(2, 2, weight_qparams={**ROWS, "qscheme": torch.per_tensor_symmetric})
    with pytest.raises(ValueError, match="Unsupported dtype and qscheme: torch.int8"):
        nnqr.Linear(2, 2, weight_qparams={**ROWS, "dtype": torch.int8}).get_quantized_weight()
    with pytest.raises(AssertionError, match="weight_qparams_dict"):
        nnqr.GRUCell(2, 2, weight_qparams_dict={"weight": ROWS})
    with pytest.raises(NotImplementedError, match="is_decomposed"):
        nnqr.Linear(2, 2, weight_qparams={**ROWS, "is_decomposed": True})
