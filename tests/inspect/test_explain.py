"""mica.explain(): the anatomy of a tensor, as text, as numbers and as a picture."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import mica
import pytest


def steps(tensor):
    return [step["operation"] for step in mica.explain(tensor).to_dict()["steps"]]


def test_numbers():
    x = mica.arange(12.0).reshape(3, 4)
    facts = mica.explain(x.t()[1:]).to_dict()
    assert (facts["shape"], facts["strides"], facts["offset"]) == ((3, 3), (1, 4), 1)
    assert (facts["dtype"], facts["device"], facts["numel"], facts["bytes"]) == ("float32", "cpu", 9, 36)
    storage = facts["storage"]
    assert storage["bytes"] == 48 and storage["address"] == x.data_ptr() and facts["address"] == x.data_ptr() + 4
    assert (storage["reached_bytes"], storage["hole_bytes"]) == (36, 8)
    assert (storage["lowest"], storage["highest"]) == (1, 11)
    assert facts["formats"] == [
        {"format": "contiguous_format", "contiguous": False, "dimension": 1, "expected_stride": 1, "stride": 4}
    ]
    json.dumps(facts)


def test_every_memory_format():
    image = mica.zeros(2, 3, 4, 5).to(memory_format=mica.channels_last)
    plain, last = mica.explain(image).to_dict()["formats"]
    assert not plain["contiguous"] and last == {"format": "channels_last", "contiguous": True}
    assert (plain["dimension"], plain["expected_stride"], plain["stride"]) == (3, 1, 3)
    assert len(mica.explain(mica.zeros(1, 1, 1, 1, 1)).to_dict()["formats"]) == 2
    assert len(mica.explain(mica.zeros(3)).to_dict()["formats"]) == 1


def test_overlaps_and_holes():
    facts = mica.explain(mica.arange(3.0).expand(1000, 3)).to_dict()
    assert facts["overlaps"] and facts["storage"]["reached_bytes"] == 12 and facts["bytes"] == 12000
    windows = mica.arange(10.0).unfold(0, 4, 1)
    assert mica.explain(windows).to_dict()["storage"]["reached_bytes"] == 40
    assert mica.explain(mica.arange(10.0)[::3]).to_dict()["storage"]["hole_bytes"] == 24
    assert mica.explain(mica.zeros(0, 3)).to_dict()["storage"]["reached_bytes"] == 0


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (lambda x: x.t(), ["t()"]),
        (lambda x: x[1], ["[1]"]),
        (lambda x: x[:, 1], ["[:, 1]"]),
        (lambda x: x[1:, ::2], ["[1:, ::2]"]),
        (lambda x: x[::-1], ["[::-1]"]),
        (lambda x: x.view(2, 6), ["view(2, 6)"]),
        (lambda x: x.unsqueeze(1), ["unsqueeze(1)"]),
        (lambda x: x[:1].expand(5, 4), ["[0]", "unsqueeze(0)", "expand(5, 4)"]),
        (lambda x: x.t()[1:], ["[:, 1:]", "t()"]),
        (lambda x: x.as_strided((2, 2), (5, 3)), ["as_strided((2, 2), (5, 3), 0)"]),
    ],
)
def test_how_a_view_came_about(view, expected):
    x = mica.tensor([[0.0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
    assert steps(view(x)) == expected


def test_a_base_of_another_shape():
    x = mica.arange(12.0).reshape(3, 4)
    assert steps(x.t()[1:]) == ["view(3, 4)", "[:, 1:]", "t()"]
    assert steps(x[::-1, ::2]) == ["view(3, 4)", "[::-1, ::2]"]


def test_steps_lead_to_the_view():
    """Carried out on the base, in order, the operations give the geometry that they are said to give."""
    x = mica.zeros(2, 3, 4)
    for view in (x.permute(2, 0, 1), x[1, :, ::2], x.transpose(1, 2)[:, 1:], x[0].t().unsqueeze(0), x.select(1, 2)):
        base = x
        for step in mica.explain(view).to_dict()["steps"]:
            code = step["operation"]
            base = eval(f"base{code}" if code.startswith("[") else f"base.{code}")
            assert (tuple(base.shape), base.stride(), base.storage_offset()) == (
                step["shape"],
                step["strides"],
                step["offset"],
            )
        assert (base.shape, base.stride()) == (view.shape, view.stride())


def test_who_else_lives_there():
    x = mica.zeros(3, 4)
    row, other = x[1], mica.zeros(3)
    kept = {"a view": x[:, 2]}
    names = dict(mica.explain(x).to_dict()["neighbours"])
    assert any(name.startswith("row") for name in names) and "a view" in names
    assert not any(name.startswith("other") for name in names)
    assert mica.explain(x).to_dict()["storage"]["holders"] == 3
    assert row.numel() + other.numel() + len(kept) == 8


class Stranger:
    """An object that does not want to be looked at."""

    @property
    def __class__(self):
        raise AssertionError("its code was run")

    __repr__ = __eq__ = __class__.fget
    __hash__ = object.__hash__


def test_looking_for_holders_runs_no_code_of_strangers():
    x = mica.zeros(3, 4)
    kept = {"a": Stranger(), Stranger(): x[1]}, [Stranger()], (Stranger(),)
    names = [name for name, _ in mica.explain(x).to_dict()["neighbours"]]
    assert "an entry of a dict, of key Stranger" in names and len(kept) == 3
    with mica.inspect.memory() as recording:
        mica.zeros(3)
    assert recording.peak() >= 12


def test_history():
    w = mica.ones(3, requires_grad=True)
    y = (w * 2).exp()
    facts = mica.explain(y).to_dict()
    assert facts["grad_fn"] == "ExpBackward0" and facts["history"] == ["ExpBackward0", "MulBackward0", "AccumulateGrad"]
    assert mica.explain(w).to_dict()["grad_fn"] is None
    assert "ExpBackward0 ← MulBackward0 ← AccumulateGrad" in str(mica.explain(y))


def test_text_and_colours(monkeypatch):
    x = mica.zeros(3, 4).t()
    explanation = mica.explain(x)
    plain, coloured = explanation.text(colours=False), explanation.text(colours=True)
    assert "\033[" not in plain and "\033[" in coloured
    assert "dimension 1 steps by 4 instead of 1" in plain and "contiguous() copies 48 B" in plain
    assert ".t()" in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\033[" in str(explanation)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033[" not in str(explanation)


def test_picture():
    html = mica.explain(mica.arange(12.0).reshape(3, 4)[:, 1])._repr_html_()
    svg = ET.fromstring(mica.explain(mica.arange(12.0).reshape(3, 4)[:, 1]).svg())
    assert "<svg" in html and "<pre" in html
    cells = [r.get("class") for r in svg.iter("{http://www.w3.org/2000/svg}rect")]
    assert [i for i, kind in enumerate(cells) if kind == "reached"] == [1, 5, 9] and len(cells) == 12


def test_other_tensors():
    assert "meta" in str(mica.explain(mica.empty(3, device="meta")))
    assert mica.explain(mica.tensor(1.0)).to_dict()["shape"] == ()
    assert mica.explain(mica.zeros(2, dtype=mica.complex64).conj()).to_dict()["conjugated"]
    with pytest.raises(TypeError, match="takes a Tensor or a compiled function, not int"):
        mica.explain(3)


def test_it_costs_an_import_nothing():
    program = (
        "import sys, mica; assert 'mica.inspect' not in sys.modules; mica.explain; assert 'mica.inspect' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


SCRIPT = """
import mica
x = mica.zeros(2, 3)
mica.explain(x)
print("--")
told = mica.explain(x)
told.to_dict()
print(mica.explain(x).text(colours=False).splitlines()[0])
"""


def test_a_script_need_not_print_an_explanation():
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    first, second = result.stdout.split("--\n")
    assert first.startswith("float32 (2, 3) on cpu\n") and "strides" in first
    assert second == "float32 (2, 3) on cpu\n"  # what is read is not printed a second time
