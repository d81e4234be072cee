"""The options of modules in ops/nn/*.toml: Python classes, written by the generator or by hand, take what the table says."""

import inspect
import sys
from pathlib import Path

import mica.nn.functional as F
import pytest
from mica import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "codegen"))
import module_table as table  # noqa: E402

ENTRIES = table.load(ROOT / "ops")
PLACES = [
    nn.modules,
    nn.modules.activation,
    nn.modules.dropout,
    nn.modules.loss,
    nn.modules.padding,
    nn.modules.pooling,
]
# Bases that the generator writes and several classes share. One of these classes stands for all.
SHARED = {
    "_Inplace": nn.ReLU,
    "_WithAlpha": nn.ELU,
    "_Shrink": nn.Hardshrink,
    "_AlongDim": nn.Softmax,
    "_MarginLoss": nn.CosineEmbeddingLoss,
    "_NormBase": nn.BatchNorm2d,
    "_InstanceNorm": nn.InstanceNorm2d,
}
CASES = [pytest.param(entry, name, id=name) for entry in ENTRIES for name in entry.class_names]


def class_of(name):
    return SHARED.get(name) or next(getattr(place, name) for place in PLACES if hasattr(place, name))


@pytest.mark.parametrize("entry,name", CASES)
def test_a_class_takes_the_options_of_the_table(entry, name):
    parameters = dict(inspect.signature(class_of(name).__init__).parameters)
    del parameters["self"]
    options = entry.python_options()
    assert list(parameters) == [o.name for o in options]
    named = False
    for o in options:
        named = named or o.name == entry.keyword_only
        assert (parameters[o.name].kind is inspect.Parameter.KEYWORD_ONLY) == named
        default = parameters[o.name].default
        if not o.default:
            assert default is inspect.Parameter.empty
        elif o.type == "activation":
            assert default is F.relu
        else:
            expected = eval(o.python_default)
            assert default == expected and type(default) is type(expected)


@pytest.mark.parametrize("entry,name", [case for case in CASES if case.values[0].cpp_class and case.values[0].repr])
def test_what_is_printed_names_the_options_of_the_table(entry, name):
    given = {"real": 0.5, "integer": 2, "sizes": 3, "each": 2, "ends": 1}
    made = {"_PadNd": nn.ReflectionPad2d, "_ConstantPadNd": nn.ConstantPad2d, "_MaxUnpoolNd": nn.MaxUnpool2d}
    values = {o.name: given[o.type] for o in entry.python_options() if not o.default}
    text = made.get(name, class_of(name))(**values).extra_repr()
    expected = [item for item in entry.repr if not item.endswith(("?", ")"))]
    assert [part.partition("=")[0] for part in text.split(", ") if "=" in part] == expected


def test_a_table_that_makes_no_sense_is_refused():
    for options in (["p: number = 1"], ["p real"]):
        with pytest.raises(table.TableError, match="cannot read the option"):
            table.read_entry("x", {"name": "X", "options": options})
    with pytest.raises(table.TableError, match="no option 'q'"):
        table.read_entry("x", {"name": "X", "options": ["p: real = 1.0"], "repr": "p, q"})
