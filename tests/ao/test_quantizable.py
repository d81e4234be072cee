"""Static quantization of LSTM and MultiheadAttention: observed in parts, converted, beside what torch recorded."""

import io
import json
import warnings
from pathlib import Path

import mica as torch
import pytest
import quantizable_cases as cases
from mica import nn
from mica.ao import quantization as q
from mica.ao.nn import quantizable
from mica.ao.nn import quantized as nnq

# torch warns of it too: the product of a query and a number is not observed.
pytestmark = pytest.mark.filterwarnings("ignore:must run observer before calling calculate_qparams")
RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "quantizable.json").read_text())


@pytest.mark.parametrize("name", cases.CASES)
@pytest.mark.parametrize("engine", RECORDED)
def test_observed_and_converted(name, engine):
    ours, theirs = cases.run(torch, name), RECORDED[engine][name]
    for (dtype, shape, values), (their_dtype, their_shape, their_values) in zip(
        ours["observed"], theirs["observed"], strict=True
    ):
        assert (dtype, shape) == (their_dtype, their_shape)
        assert values == pytest.approx(their_values, rel=1e-5, abs=1e-6)
    # torch's engines differ from each other by two steps. Two of them round a bias to the product of the scales, which
    # is coarse for the first state, whose scale is 1. Here, as in FBGEMM, the bias is not rounded.
    for got, expected in zip(ours["converted"], theirs["converted"], strict=True):
        (dtype, shape, scale, zero_point, numbers), (*their_kind, their_scale, their_zero_point, their_numbers) = (
            got,
            expected,
        )
        assert [dtype, shape, zero_point] == [*their_kind, their_zero_point]
        assert scale == pytest.approx(their_scale, rel=1e-6)
        assert max(abs(a - b) for a, b in zip(numbers, their_numbers, strict=True)) <= 2


def test_the_converted_model_is_made_of_quantized_parts():
    made = []
    cases.run(torch, "LSTM both ways", made)
    lstm = made[0].inner
    assert type(lstm) is nnq.LSTM and repr(lstm).startswith("QuantizedLSTM(")
    cell = lstm.layers[1].layer_bw.cell
    assert isinstance(cell.igates, nnq.Linear) and isinstance(cell.ogate_cy, nnq.QFunctional)
    assert type(cell.cell_gate) is nn.Tanh
    assert not any(hasattr(part, "qconfig") for part in made[0].modules())
    cases.run(torch, "attention", made)
    attention = made[1].inner
    assert type(attention) is nnq.MultiheadAttention and repr(attention).startswith("QuantizedMultiheadAttention(")
    assert not hasattr(attention, "in_proj_weight")
    plain = attention.dequantize()
    assert type(plain) is nn.MultiheadAttention
    torch.testing.assert_close(plain.out_proj.weight.data, attention.out_proj.weight().dequantize())


def test_an_observed_lstm_computes_what_the_float_one_does():
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 4, 2, bidirectional=True).eval()
    lstm.qconfig = q.default_qconfig
    observed = quantizable.LSTM.from_float(lstm)
    x, state = torch.randn(5, 2, 3), (torch.randn(4, 2, 4), torch.randn(4, 2, 4))
    for given in (None, state):
        torch.testing.assert_close(observed(x, given), lstm(x, given))
    cell = nn.LSTMCell(3, 4)
    cell.qconfig = q.default_qconfig
    for split_gates in (False, True):
        parts = quantizable.LSTMCell.from_float(cell, split_gates=split_gates)
        torch.testing.assert_close(parts(x[0]), cell(x[0]))


def test_training_rounds_the_weights_of_an_lstm():
    torch.manual_seed(0)
    model = nn.Sequential(q.QuantStub(), nn.LSTM(3, 4)).train()
    model.qconfig = q.get_default_qat_qconfig("onednn")
    trained = q.prepare_qat(model)
    output, _ = trained(torch.randn(5, 2, 3))
    output.sum().backward()
    assert trained[1].layers[0].layer_fw.cell.igates.weight.grad is not None
    converted = q.convert(trained.eval())
    assert type(converted[1]) is nnq.LSTM
    assert converted(torch.randn(5, 2, 3))[0].is_quantized


def test_states_are_saved_and_loaded():
    made = []
    facts = cases.run(torch, "LSTM", made)
    assert {"quant.scale", "quant.zero_point"} < made[0].state_dict().keys()
    buffer = io.BytesIO()
    torch.save(made[0].state_dict(), buffer)
    buffer.seek(0)
    other = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(5)
        cases.run(torch, "LSTM", other)
    with torch.no_grad():
        other[0].inner.layers[0].layer_fw.cell.ogate_cy.scale = 1.0
        other[0].quant.scale.fill_(1.0)
    other[0].load_state_dict(torch.load(buffer, weights_only=False))
    torch.manual_seed(1)
    for _ in range(2):
        inputs = [torch.randn(5, 2, 3)]
    assert [cases._listed(x) for x in cases._flat(other[0](inputs))] == facts["converted"]


def test_what_is_refused():
    lstm = nn.LSTM(3, 4, proj_size=2)
    with pytest.raises(AssertionError, match="other must have qconfig"):
        quantizable.LSTM.from_float(lstm)
    lstm.qconfig = q.default_qconfig
    with pytest.raises(NotImplementedError, match="proj_size=2"):
        quantizable.LSTM.from_float(lstm)
    with pytest.raises(NotImplementedError, match="non-observed LSTM"):
        nnq.LSTM.from_float(lstm)
    with pytest.raises(NotImplementedError, match="non-quantizable LSTM"):
        quantizable.LSTM.from_observed(lstm)
    with pytest.raises(ValueError, match="dropout should be a number"):
        quantizable.LSTM(3, 4, dropout=True)
    with pytest.warns(UserWarning, match="dropout option for quantizable LSTM is ignored"):
        quantizable.LSTM(3, 4, 2, dropout=0.5)
    attention = quantizable.MultiheadAttention(8, 2)
    x = torch.randn(4, 2, 8)
    with pytest.raises(AssertionError, match="causal mask not supported"):
        attention(x, x, x, is_causal=True)
    with pytest.raises(RuntimeError, match="The size of the 2D attn_mask is not correct"):
        attention(x, x, x, attn_mask=torch.zeros(3, 4))
    with pytest.raises(NotImplementedError, match="is_reference"):
        q.convert(nn.Linear(2, 2), is_reference=True)


def test_quantized_tensors_of_other_scales_are_joined_in_the_first():
    a = torch.quantize_per_tensor(torch.linspace(-2, 2, 12).reshape(3, 4), 0.03, 120, torch.quint8)
    b = torch.quantize_per_tensor(torch.linspace(-1, 2, 12).reshape(3, 4), 0.02, 100, torch.quint8)
    joined = torch.cat([a, b], 1)
    assert (joined.q_scale(), joined.q_zero_point()) == (0.03, 120)
    assert joined[0].int_repr().tolist() == [53, 65, 78, 90, 87, 96, 105, 114]  # torch's
    assert torch.stack([a, b]).shape == (2, 3, 4)
    with pytest.raises(RuntimeError, match="All dtypes must be the same"):
        torch.cat([a, torch.quantize_per_tensor(torch.ones(3, 4), 0.1, 0, torch.qint8)])
