"""Execution traces: the nodes of operators are those that torch 2.13 writes, where both see the operator."""

import gzip
import json

import mica as torch
from mica.profiler import ExecutionTraceObserver, profile

# Recorded from torch 2.13: inputs and outputs without the numbers of tensors.
MM = (
    [[0, 6, 4, "cpu"], [0, 6, 4, "cpu"]], [[2, 3], [3, 2]], ["Tensor(float)", "Tensor(float)"], [[3, 1], [2, 1]],
    [[0, 4, 4, "cpu"]], [[2, 2]], ["Tensor(float)"], [[2, 1]],
)  # fmt: skip
SUM = (
    [[0, 4, 4, "cpu"], [0], False, "<None>"], [[2, 2], [[]], [], []],
    ["Tensor(float)", "GenericList[Int]", "Bool", "None"], [[2, 1], [[]], [], []],
    [[0, 2, 4, "cpu"]], [[2]], ["Tensor(float)"], [[1]],
)  # fmt: skip
CAT = (
    [[[0, 6, 4, "cpu"], [0, 6, 4, "cpu"]], 0], [[[2, 3], [2, 3]], []],
    ["GenericList[Tensor(float),Tensor(float)]", "Int"], [[[3, 1], [3, 1]], []],
    [[0, 12, 4, "cpu"]], [[4, 3]], ["Tensor(float)"], [[3, 1]],
)  # fmt: skip


def without_numbers(value):
    if isinstance(value, list) and len(value) == 6 and isinstance(value[-1], str):
        return value[2:]
    return [without_numbers(each) for each in value] if isinstance(value, list) else value


def program():
    x = torch.ones(2, 3, requires_grad=True)
    y = torch.mm(x, torch.ones(3, 2)).sum(dim=[0], keepdim=False)
    torch.cat([x, x])
    return y


def test_nodes_of_operators(tmp_path):
    file = tmp_path / "trace.json"
    observer = ExecutionTraceObserver().register_callback(str(file))
    program()  # not yet
    observer.start()
    assert observer.is_running() and observer.is_registered and observer.get_output_file_path() == str(file)
    program()
    observer.stop()
    program()  # no more
    observer.unregister_callback()
    trace = json.loads(file.read_text())
    assert trace["schema"] == "1.1.1-chakra.0.0.4" and trace["finish_ts"] >= trace["start_ts"]
    nodes = {node["name"]: node for node in trace["nodes"]}
    assert len({node["id"] for node in trace["nodes"]}) == len(trace["nodes"])
    assert nodes["[pytorch|profiler|execution_trace|thread]"]["ctrl_deps"] == 1
    for name, expected in (("aten::mm", MM), ("aten::sum", SUM), ("aten::cat", CAT)):
        node = nodes[name]
        found = [
            node[side][part] for side in ("inputs", "outputs") for part in ("values", "shapes", "types", "strides")
        ]
        assert [without_numbers(each) for each in found] == list(expected), name
        assert node["ctrl_deps"] == 2
    assert [node["name"] for node in trace["nodes"]].count("aten::mm") == 1
    # The sum reads what the product made.
    assert nodes["aten::sum"]["inputs"]["values"][0] == nodes["aten::mm"]["outputs"]["values"][0]
    schema = next(each["value"] for each in nodes["aten::mm"]["attrs"] if each["name"] == "op_schema")
    assert schema == "aten::mm(Tensor self, Tensor mat2) -> Tensor"


def test_a_profile_starts_and_stops_its_observer(tmp_path):
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "trace.json.gz"))
    with profile(execution_trace_observer=observer):
        program()
    assert not observer.is_running()
    observer.cleanup()
    observer.cleanup()  # nothing is left to write
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        assert "aten::mm" in {node["name"] for node in json.load(file)["nodes"]}
