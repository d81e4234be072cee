"""The anatomy of tensors that are not plain ones: their parts and what each costs."""

import json
import xml.etree.ElementTree as ET

import mica
import pytest


def parts(explanation):
    return {part["name"]: (part["dtype"], part["shape"], part["bytes"]) for part in explanation.to_dict()["parts"]}


def classes(explanation):
    svg = ET.fromstring(explanation.svg())
    return [r.get("class") for r in svg.iter("{http://www.w3.org/2000/svg}rect")]


def matrix():
    x = mica.zeros(4, 6)
    x[0, 1], x[2, 5] = 1.0, 2.0
    return x


def test_coo():
    told = mica.explain(matrix().to_sparse())
    facts = told.to_dict()
    assert facts["layout"] == "sparse_coo" and facts["shape"] == (4, 6) and facts["strides"] == ()
    assert parts(told) == {"_indices": ("int64", (2, 2), 32), "_values": ("float32", (2,), 8)}
    assert (facts["part_bytes"], facts["dense_bytes"], facts["storage"]["bytes"]) == (40, 96, 40)
    # 20 bytes for two indices and a value: four of them are 80, five are 100.
    assert facts["sparse"] == {
        "specified": 2, "stored": 2, "break_even": 4, "bytes_each": 20, "sparse_dims": 2, "dense_dims": 0, "coalesced": True,
    }  # fmt: skip
    text = told.text(colours=False)
    assert "float32 (4, 6) sparse_coo on cpu" in text and "2 of them (8 %) in memory" in text
    assert "up to 4 indices of 20 B would be smaller" in text and "coalesced" in text
    json.dumps(facts)
    # The pattern, the parts' bars with the dense one, and the key.
    assert classes(told)[:24].count("reached") == 2 and classes(told)[24:].count("free") == 2


def test_coo_that_is_not_coalesced_and_hybrid():
    x = mica.sparse_coo_tensor([[0, 0]], [[1.0, 2.0], [3.0, 4.0]], (3, 2))
    told = mica.explain(x)
    assert "not coalesced: an index may come twice" in str(told) and "1 sparse dimension, 1 dense" in str(told)
    assert told.to_dict()["sparse"]["stored"] == 4 and told.to_dict()["sparse"]["bytes_each"] == 16


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        ("csr", ("crow_indices", "col_indices", "values")),
        ("csc", ("ccol_indices", "row_indices", "values")),
        ("bsr", ("crow_indices", "col_indices", "values")),
        ("bsc", ("ccol_indices", "row_indices", "values")),
    ],
)
def test_compressed(layout, names):
    convert = getattr(matrix(), f"to_sparse_{layout}")
    x = convert((2, 2)) if layout.startswith("b") else convert()
    told = mica.explain(x)
    assert tuple(parts(told)) == names and told.to_dict()["layout"] == f"sparse_{layout}"
    for name in names:
        held = getattr(x, name)()
        assert parts(told)[name] == (str(held.dtype).split(".")[-1], tuple(held.shape), held.nbytes)
    assert told.to_dict()["sparse"]["stored"] == x.values().numel()
    assert f"sparse_{layout}" in str(told) and told.svg()


def test_the_break_even_is_where_it_is_said():
    for count in (4, 5):
        flat = mica.zeros(24)
        flat[:count] = 1.0
        facts = mica.explain(flat.view(4, 6).to_sparse()).to_dict()
        assert (facts["part_bytes"] < facts["dense_bytes"]) == (count <= facts["sparse"]["break_even"])


def test_quantized_per_tensor():
    x = mica.quantize_per_tensor(mica.randn(3, 4), 0.5, 10, mica.quint8)
    told = mica.explain(x)
    facts = told.to_dict()
    assert facts["dtype"] == "quint8" and facts["bytes"] == 12 and facts["dense_bytes"] == 48
    assert facts["quantized"] == {
        "scheme": "per_tensor_affine", "scale": 0.5, "zero_point": 10, "lowest": -5.0, "highest": 122.5,
    }  # fmt: skip
    text = str(told)
    assert "quint8 (3, 4)" in text and "(integer - 10) * 0.5" in text and "from -5 to 122.5 in steps of 0.5" in text
    assert "this takes 0.25 times that" in text and "means (integer - 10) * 0.5" in told.svg()


def test_quantized_per_channel():
    scales, zeros = mica.tensor([0.1, 0.2, 0.3]), mica.tensor([0, 1, 2])
    told = mica.explain(mica.quantize_per_channel(mica.randn(3, 4), scales, zeros, 0, mica.qint8))
    facts = told.to_dict()
    assert facts["quantized"] == {"scheme": "per_channel_affine", "axis": 0}
    assert list(parts(told)) == ["int_repr", "q_per_channel_scales", "q_per_channel_zero_points"]
    assert facts["part_bytes"] == 12 + 24 + 24 and "one pair for each of the 3 slices of dimension 0" in str(told)
    # Twelve integers, three bars and the one of float32, four keys.
    assert len(classes(told)) == 12 + 4 + 4


def test_nested():
    x = mica.nested.nested_tensor([mica.randn(3, 2), mica.randn(1, 2)], layout=mica.jagged)
    told = mica.explain(x)
    facts = told.to_dict()
    assert facts["layout"] == "jagged" and facts["shape"] == (4, 2)
    assert facts["nested"] == {"shape": (2, -1, 2), "lengths": (3, 1), "ragged_dim": 1}
    assert parts(told) == {"values": ("float32", (4, 2), 32), "offsets": ("int64", (3,), 24)}
    assert facts["dense_bytes"] == 2 * 3 * 2 * 4
    text = str(told)
    assert "float32 (2, j, 2) nested on cpu" in text and "2 sequences of length 3, 1 along dimension 1" in text
    # The sequences alternate in colour on the tape.
    assert classes(told)[:8] == ["reached"] * 6 + ["other"] * 2
    json.dumps(facts)


def test_named_and_meta():
    named = mica.explain(mica.zeros(2, 3, names=("N", None)))
    assert named.to_dict()["names"] == ["N", None] and "names       ('N', None)" in str(named)
    assert "names ('N', None)" in "".join(ET.fromstring(named.svg()).itertext())
    assert mica.explain(mica.zeros(2)).to_dict()["names"] is None
    meta = mica.explain(mica.zeros(2, 3, device="meta"))
    assert "the meta device has shapes and no memory; elsewhere 24 B" in str(meta) and "█" not in str(meta)
    assert meta.to_dict()["storage"]["address"] == 0 and "no memory" in meta.svg()


def test_lazy_bits_and_how_they_came():
    x = mica.randn(4, 3, dtype=mica.complex64)

    def steps(view):
        return [step["operation"] for step in mica.explain(view).to_dict()["steps"]]

    assert steps(x.conj()) == ["conj()"] and steps(x.conj().t()) == ["t()", "conj()"]
    assert steps(x.real) == ["real"] and steps(x.imag) == ["imag"] and steps(x.conj().imag) == ["conj()", "imag"]
    assert steps(x.real[1:]) == ["view(mica.float32)", "[1:, ::2]"]
    assert steps(mica.view_as_real(x)) == ["view(mica.float32)", "view(4, 3, 2)"]
    assert steps(mica.arange(4)[...]) == ["[...]"]
    conjugated, negated = mica.explain(x.conj()), mica.explain(x.conj().imag)
    assert "resolve_conj() copies 96 B" in str(conjugated) and conjugated.to_dict()["conjugated"]
    assert "resolve_neg() copies 48 B" in str(negated) and "lazily negated" in negated.svg()


@pytest.mark.parametrize("make", [
    lambda: mica.zeros(0, 4).to_sparse(),
    lambda: mica.zeros(0, 4).to_sparse_csr(),
    lambda: mica.tensor(1.0).to_sparse(),
    lambda: mica.zeros(2, 3, 4, 5, 6).to_sparse(2),
    lambda: mica.zeros(2, 3, 4).to_sparse_csr(),
    lambda: mica.quantize_per_tensor(mica.zeros(0), 1.0, 0, mica.qint32),
    lambda: mica.zeros(3, requires_grad=True).to_sparse(),
    lambda: mica.zeros(30, 40).to_sparse(),
])  # fmt: skip
def test_every_kind_is_said_and_drawn(make):
    told = mica.explain(make())
    assert str(told) and told.to_dict() and ET.fromstring(told.svg()) is not None and told._repr_html_()
