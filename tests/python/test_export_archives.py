"""The records of .pt2 archives, and programs that are moved to another device."""

import io
import json
import subprocess
import sys

import mica as torch
import pytest
from mica import nn
from mica.export.passes import move_to_device_pass
from mica.export.pt2_archive import PT2ArchiveReader, PT2ArchiveWriter, is_pt2_package


def test_records_are_written_and_read(tmp_path):
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "file").write_text("text")
    path = tmp_path / "a.pt2"
    with PT2ArchiveWriter(path) as archive:
        archive.write_string("extra/notes", "trained")
        archive.write_bytes("bytes", b"123")
        archive.write_file("copy", tmp_path / "folder" / "inner" / "file")
        archive.write_folder("all", tmp_path / "folder")
        assert archive.has_record("bytes") and not archive.has_record("absent")
        assert archive.count_prefix("extra/") == 1
        with pytest.raises(RuntimeError, match="Tried to serialize file"):
            archive.write_bytes("bytes", b"4")
        with pytest.raises(AssertionError, match="Expected string but got <class 'bytes'>"):
            archive.write_string("other", b"4")
        with pytest.raises(AssertionError, match="absent is not a valid file path"):
            archive.write_file("other", tmp_path / "absent")
    assert is_pt2_package(path) and is_pt2_package(path.read_bytes())
    with PT2ArchiveReader(path) as archive:
        assert archive.get_file_names()[:6] == [
            "extra/notes", "bytes", "copy", "all/inner/file", "archive_format", "archive_version",
        ]  # fmt: skip
        assert archive.read_string("extra/notes") == "trained" and archive.read_bytes("all/inner/file") == b"text"
        assert archive.archive_version() == 0
        with pytest.raises(RuntimeError, match="failed locating file absent"):
            archive.read_bytes("absent")


def test_other_files_are_no_archives(tmp_path):
    plain, unfinished = tmp_path / "plain", tmp_path / "unfinished.pt2"
    plain.write_text("text")
    archive = PT2ArchiveWriter(unfinished)
    archive.write_string("a", "b")
    archive.close()  # without a with block it does not say what it is
    for path in (plain, unfinished, tmp_path / "absent"):
        assert not is_pt2_package(path)
        with pytest.raises(RuntimeError):
            PT2ArchiveReader(path)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(2, 2)
        self.register_buffer("b", torch.ones(2))
        self.c = torch.ones(2)

    def forward(self, x):
        return self.l(x) + self.b + torch.zeros(2) + self.c


def exported():
    return torch.export.export(Model(), (torch.ones(3, 2),))


def test_saved_programs_are_archives():
    buffer = io.BytesIO()
    torch.export.save(exported(), buffer)
    buffer.seek(0)
    assert is_pt2_package(buffer)
    assert "models/model.json" in PT2ArchiveReader(buffer).get_file_names()


@pytest.mark.parametrize("location", ["meta", torch.device("meta"), {"cpu": "meta"}])
def test_a_program_is_moved(location):
    program = exported()
    assert move_to_device_pass(program, location) is program
    held = {**program.state_dict, **program.constants}
    assert held.keys() == {"l.weight", "l.bias", "b", "c"} and all(each.is_meta for each in held.values())
    assert isinstance(held["l.weight"], nn.Parameter)
    made = program.graph.find_nodes(op="call_function", target=torch.ops.aten.zeros.default)[0]
    assert made.kwargs["device"] == torch.device("meta") and made.meta["val"].is_meta
    assert program.example_inputs[0][0].is_meta
    assert program.module()(torch.ones(3, 2, device="meta")).is_meta


def test_other_devices_stay():
    program = move_to_device_pass(exported(), {"cuda": "meta"})
    assert torch.allclose(program.module()(torch.zeros(3, 2)), program.state_dict["l.bias"].expand(3, 2) + 2)


def test_names_of_export():
    assert torch.export.CustomDecompTable is torch.export.decomp_utils.CustomDecompTable
    signature = exported().graph_signature
    kinds = [type(each.arg) for each in signature.input_specs]
    assert torch.export.graph_signature.CustomObjArgument not in kinds


class Changes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        y = x.clone()
        y[0].fill_(2.0)
        y.t()[1].mul_(3)
        y[x > 1] = -1.0
        self.seen = self.seen + y[0]
        return y


@pytest.mark.parametrize("way", ["as exported", "decomposed"])
def test_archives_know_every_tensor(way):
    """torch reads no archive that has a name of a tensor without its sizes."""
    program = torch.export.export(Changes(), (torch.randn(3, 3),))
    buffer = io.BytesIO()
    torch.export.save(program if way == "as exported" else program.run_decompositions(), buffer)
    graph = json.loads(PT2ArchiveReader(buffer).read_string("models/model.json"))["graph_module"]["graph"]
    made = [out["as_tensor"]["name"] for node in graph["nodes"] for out in node["outputs"]]
    assert made and set(made) <= graph["tensor_values"].keys()


def test_named_tuples_of_operations():
    class Sorts(nn.Module):
        def forward(self, x):
            return x.sort(), x.cummax(0)

    program, buffer = torch.export.export(Sorts(), (torch.ones(3),)), io.BytesIO()
    torch.export.save(program, buffer)
    text = PT2ArchiveReader(buffer).read_string("models/model.json")
    # A process that has not seen these classes yet reads the program, too.
    code = "import io, sys, mica as torch; p = torch.export.load(io.BytesIO(sys.stdin.buffer.read())).module(); "
    code += "print([type(each).__name__ for each in p(torch.ones(3))])"
    done = subprocess.run([sys.executable, "-c", code], input=buffer.getvalue(), capture_output=True)
    assert done.stdout.decode().strip() == "['sort', 'cummax']", done.stderr.decode()
    assert "torch.return_types.sort" in text
    with pytest.raises(NotImplementedError, match="is not registered"):
        torch.utils._pytree.treespec_loads(
            '[1, {"type": "torch.return_types.no", "context": "null", "children_spec": []}]'
        )


def test_tensordot_by_its_operator():
    x, y = torch.randn(2, 3, 4), torch.randn(4, 3, 5)
    made = torch.ops.aten.tensordot.default(x, y, [1, 2], [1, 0])
    assert torch.equal(made, torch.tensordot(x, y, ([1, 2], [1, 0])))
    out = torch.empty(2, 5)
    assert torch.ops.aten.tensordot.out(x, y, [1, 2], [1, 0], out=out) is out and torch.equal(out, made)
    assert torch.ops.aten.tensordot(x, y, [2], [0]).shape == (2, 3, 3, 5)
