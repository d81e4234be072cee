"""torch.onnx.ops: ONNX's operators as functions, and how they are written."""

import json
from pathlib import Path

import mica as torch
import onnx_operator_cases as cases
import pytest
from mica import nn
from mica.onnx import ops
from mica.onnx.ops.attributes import decoded, encoded

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "onnx_operators.json").read_text())


@pytest.mark.parametrize("name", cases.CASES)
def test_results_are_torchs(name):
    for ours, theirs in zip(cases.result(torch, name), RECORDED[name], strict=True):
        assert (ours["dtype"], ours["shape"]) == (theirs["dtype"], theirs["shape"])
        assert ours["values"] == pytest.approx(theirs["values"], abs=2e-3 if "16" in ours["dtype"] else 1e-5)


def test_they_are_operators():
    q = torch.rand(1, 2, 3, 4, requires_grad=True)
    ops.attention(q, q, q)[0].sum().backward()
    assert q.grad is not None
    assert set(ops.aten_decompositions()) == {torch.ops.onnx.Attention.opset23, torch.ops.onnx.RotaryEmbedding.opset23}
    assert "int? version=None" in str(torch.ops.onnx_symbolic._symbolic.default._schema)


def test_symbolic_operators_compute_zeros():
    x = torch.ones(2, 3)
    made = ops.symbolic("mine::Op", (x, None), {"a": 1}, dtype=torch.float16, shape=(2, 4))
    assert made.dtype == torch.float16 and made.shape == (2, 4) and not made.any()
    first, second = ops.symbolic_multi_out("Op", [x], dtypes=(1, torch.int64), shapes=((2, 3), (4,)))
    assert (first.dtype, second.dtype, second.shape) == (torch.float32, torch.int64, (4,))


def test_attributes_come_back():
    given = {
        "i": 3,
        "f": 2.5,
        "s": "text",
        "is": [1, 2],
        "fs": [1.0, 2.0],
        "ss": ["a", "b"],
        "b": True,
        "bs": [True, False],
    }
    arguments = encoded(given)
    assert decoded(**arguments) == given
    assert arguments["attr_types"] == ["i", "f", "s", "is", "fs", "ss", "i", "is"]


def test_refusals():
    x, cache = torch.rand(2, 3, 4, 6), torch.rand(10, 3)
    places = torch.zeros(2, 4, dtype=torch.int64)
    for match, call in (
        ("num_heads must be provided for 3D inputs", lambda: ops.rotary_embedding(x[0], cache, cache, places)),
        ("cos_cache/sin_cache must be 3D when position_ids is not", lambda: ops.rotary_embedding(x, cache, cache)),
        (r"position_ids first dim \(batch\) must match", lambda: ops.rotary_embedding(x, cache, cache, places[:1])),
        (r"Last dimension of cos cache \(2\)", lambda: ops.rotary_embedding(x, cache[:, :2], cache, places)),
        ("q_num_heads and kv_num_heads must be provided", lambda: ops.attention(x[0], x[0], x[0])),
        (r"q_num_heads \(3\) must be divisible by kv_num_heads \(2\)", lambda: ops.attention(x, x[:, :2], x[:, :2])),
        ("Cannot use both is_causal and attn_mask", lambda: ops.attention(x, x, x, x[0, 0, :, :4], is_causal=True)),
        ("softmax_precision is ONNX's number", lambda: ops.attention(x, x, x, softmax_precision=torch.float16)),
        ("99 is invalid as an ONNX data type", lambda: ops.symbolic("Op", [x], dtype=99, shape=())),
        (r"Number of shapes \(1\)", lambda: ops.symbolic_multi_out("Op", [x], dtypes=(1, 1), shapes=((1,),))),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=match):
            call()
    for value, match in (([], "Empty sequence"), (x, "Unsupported attribute type"), ([x], "Unsupported sequence")):
        with pytest.raises(ValueError, match=match):
            ops.symbolic("Op", [x], {"a": value}, dtype=1, shape=())


class Rotated(nn.Module):
    def forward(self, q, k, v, cos, sin):
        turned = ops.rotary_embedding(q, cos, sin, torch.arange(4).expand(2, 4))
        result, _, _, scores = ops.attention(turned, k, v, is_causal=True)
        return result * 2, scores


@pytest.mark.parametrize("as_program", [False, True])
@pytest.mark.parametrize("opset", [18, 23])
def test_they_are_written(opset, as_program):
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    torch.manual_seed(0)
    inputs = tuple(torch.randn(size) for size in ((2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 6), (9, 3), (9, 3)))
    module = Rotated()
    source = (torch.export.export(module, inputs),) if as_program else (module, inputs)
    made = torch.onnx.export(*source, opset_version=opset)
    kinds = [node.op_type for node in made.model_proto.graph.node]
    assert ("Attention" in kinds and "RotaryEmbedding" in kinds) == (opset == 23)
    assert len(kinds) == 5 or opset == 18
    for ours, theirs in zip(made.call_reference(*inputs), module(*inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_symbolic_operators_are_written():
    pytest.importorskip("onnx", reason="the package onnx is not installed")

    class Named(nn.Module):
        def forward(self, x):
            attributes = {"a": 1, "b": 2.0, "c": "s", "d": [1, 2]}
            y = ops.symbolic(
                "mine.own::Op", (x, None, x), attributes, dtype=x.dtype, shape=x.shape, version=3, metadata_props={"k": "v"}
            )  # fmt: skip
            parts = ops.symbolic_multi_out("Split", [x], {"num_outputs": 2}, dtypes=[1, 1], shapes=[(2, 2)] * 2)
            return y.relu(), parts[0] + parts[1]

    made = torch.onnx.export(Named(), (torch.rand(4, 2),)).model_proto
    first, split = made.graph.node[:2]
    assert (first.domain, first.op_type, list(first.input)) == ("mine.own", "Op", ["x", "", "x"])
    assert {a.name: a.i or a.f or a.s or list(a.ints) for a in first.attribute} == {
        "a": 1, "b": 2.0, "c": b"s", "d": [1, 2]
    }  # fmt: skip
    assert first.metadata_props[0].value == "v" and len(split.output) == 2
    assert {each.domain: each.version for each in made.opset_import} == {"": 18, "mine.own": 3}
