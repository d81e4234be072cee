"""Archives that were made to do harm: nothing in them is run, and what cannot be read is refused in words."""

import copy
import io
import json
import zipfile

import mica as torch
import pytest
from mica import nn

MARK = "__import__('builtins').reached.append(1)"  # what a file would have run


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x, y):
        return torch.add(self.linear(x), y, alpha=2) + torch.zeros(2)


@pytest.fixture(scope="module")
def records():
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(Model(), (torch.ones(3, 2), torch.ones(3, 2))), buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def reached(monkeypatch):
    found = []
    monkeypatch.setattr("builtins.reached", found, raising=False)
    return found


def loaded(records, edit=lambda text: text):
    """The program of edited JSON records."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in records.items():
            archive.writestr(name, edit(data.decode()) if name.endswith(".json") else data)
    buffer.seek(0)
    return torch.export.load(buffer)


def in_graph(change):
    """An edit of the graph module."""

    def edit(text):
        document = json.loads(text)
        if "graph_module" in document:
            change(document["graph_module"])
        return json.dumps(document)

    return edit


def run(program):
    x = torch.ones(3, 2)
    program.module()(x, x)
    program.run_decompositions()
    torch.export.unflatten(program)(x, x)


def rename_keyword(graph_module):
    rows = [each for node in graph_module["graph"]["nodes"] for each in node["inputs"] if each["kind"] == 2]
    assert rows
    for row in rows:
        row["name"] = f"**{{}}) or {MARK} or dict(a"


def rename_argument(text):
    def change(graph_module):
        graph_module["module_call_graph"][0]["signature"]["forward_arg_names"][1] = text

    return change


@pytest.mark.parametrize(
    "change", [rename_keyword, *map(rename_argument, (f"y={MARK}", f"y: {MARK}", f"y): return {MARK} #", "", 3))]
)
def test_names_of_arguments_are_no_code(records, reached, change):
    with pytest.raises((TypeError, ValueError)):
        run(loaded(records, in_graph(change)))
    assert not reached


@pytest.mark.parametrize("quote", ['"', "'", '\\"', "\n"])
def test_names_of_parameters_are_no_code(records, reached, quote):
    mark = "getattr(__import__('builtins'), 'reached').append(1)".replace(".", "")
    for name in (f"{quote}) or {mark} or ({quote}", f"{quote}+{mark}+{quote}", f"a;{mark};b", mark):
        program = loaded(records, lambda text, name=name: text.replace('"linear.weight"', json.dumps(f"linear.{name}")))
        assert f"linear.{name}" in program.state_dict
        run(program)
    assert not reached


def test_keywords_that_are_no_names():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(dict, (), {"a b": x, "class": x, "c": x}))
    assert list(torch.fx.GraphModule(nn.Module(), graph)(1)) == ["a b", "class", "c"]


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.loaded_libraries.add",
        "torch.ops.aten.name.upper",
        "torch.ops.aten.add.overloads",
        "torch.ops.aten.add._op",
    ],
)
def test_what_is_no_operator_is_not_called(records, target):
    def change(graph_module):
        graph_module["graph"]["nodes"][0]["target"] = target

    with pytest.raises(NotImplementedError, match="which is no operator of Mica's"):
        loaded(records, in_graph(change))


def shortest_list(graph_module):
    graph_module["graph"]["tensor_values"]["x"]["sizes"] = [{"as_expr": {"expr_str": "(" * 5000, "hint": None}}]


def zero_below(graph_module):
    graph_module["graph"]["tensor_values"]["x"]["sizes"][0] = {
        "as_expr": {"expr_str": "FloorDiv(s77, 0)", "hint": None}
    }


def text_for_a_list(graph_module):
    graph_module["graph"]["nodes"] = "nodes"


def number_for_a_name(graph_module):
    graph_module["graph"]["nodes"][0]["target"] = 5


@pytest.mark.parametrize("change", [shortest_list, zero_below, text_for_a_list, number_for_a_name])
def test_damaged_graphs_are_refused_in_words(records, change):
    with pytest.raises(RuntimeError, match="the archive is damaged"):
        loaded(records, in_graph(change))


def test_damaged_records_are_refused_in_words(records):
    name = next(each for each in records if each.endswith("models/model.json"))
    for text in (b"[" * 100_000, b"null", b"\xff\xfe", b"{", records[name][:100]):
        edited = copy.copy(records)
        edited[name] = text
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for each, data in edited.items():
                archive.writestr(each, data)
        buffer.seek(0)
        with pytest.raises(RuntimeError, match="the archive is damaged"):
            torch.export.load(buffer)
    whole = bytearray(buffer.getvalue())
    at = bytes(whole).index(records[next(each for each in records if "weights/weight" in each)])
    whole[at] ^= 1  # the checksum is another one now
    with pytest.raises(RuntimeError, match="the archive is damaged"):
        torch.export.load(io.BytesIO(bytes(whole)))
