"""Checkpoints as folders of safetensors files."""

import json

import mica
import mica.distributed as dist
import mica.distributed.checkpoint as dcp
import pytest
import ranks
from mica._checkpoints.safetensors import read_header
from mica.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

STATES = {
    "a.w": mica.arange(6.0).view(2, 3),
    "b": mica.ones(2, dtype=mica.bfloat16),
    "i": mica.arange(3),
    "truths": mica.tensor([True, False]),
    "eight": mica.ones(2, 2).to(mica.float8_e4m3fn),
    "number": mica.tensor(2.5),
    "strided": mica.arange(6.0).view(2, 3).t(),
}


def loaded(folder, states=STATES):
    made = {name: mica.zeros_like(value) for name, value in states.items()}
    dcp.load(made, storage_reader=HuggingFaceStorageReader(folder), no_dist=True)
    return made


def same(ours, theirs):
    return all(mica.equal(ours[name].float(), theirs[name].float()) for name in theirs)


def test_one_file_with_an_index(tmp_path):
    dcp.save(STATES, storage_writer=HuggingFaceStorageWriter(tmp_path), no_dist=True)
    name = "model-00001-of-00001.safetensors"
    assert sorted(each.name for each in tmp_path.iterdir()) == [name, "model.safetensors.index.json"]
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == dict.fromkeys(STATES, name)
    assert index["metadata"]["total_size"] == sum(each.nbytes for each in STATES.values())
    header = read_header(tmp_path / name)
    assert header["__metadata__"]["format"] == "pt" and header["b"]["dtype"] == "BF16"
    assert json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])["a.w"] == {"saved_offsets": [0, 0]}
    assert same(loaded(tmp_path), STATES)
    assert same(mica.load(tmp_path / name), STATES)
    wider = {"a.w": mica.zeros(2, 3, dtype=mica.float64)}
    dcp.load(wider, storage_reader=HuggingFaceStorageReader(tmp_path), no_dist=True)
    assert wider["a.w"][1, 2] == 5


def test_several_files(tmp_path):
    numbers = {name: 1 + place % 2 for place, name in enumerate(STATES)}
    dcp.save(STATES, storage_writer=HuggingFaceStorageWriter(tmp_path, numbers), no_dist=True)
    assert read_header(tmp_path / "model-00002-of-00002.safetensors").keys() - {"__metadata__"} == {
        name for name, number in numbers.items() if number == 2
    }
    assert same(loaded(tmp_path), STATES)


def test_what_the_files_do_not_hold(tmp_path):
    with pytest.warns(UserWarning, match="n is no tensor: safetensors files do not hold it"):
        dcp.save({"n": 3, "t": mica.ones(1)}, storage_writer=HuggingFaceStorageWriter(tmp_path), no_dist=True)
    with pytest.raises(dcp.CheckpointException):
        loaded(tmp_path, {"absent": mica.zeros(1)})
    with pytest.raises(dcp.CheckpointException):  # which file?
        dcp.save(STATES, storage_writer=HuggingFaceStorageWriter(tmp_path, {"b": 1}), no_dist=True)
    (tmp_path / "model-00001-of-00001.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(RuntimeError, match="is not a safetensors file, or damaged"):
        HuggingFaceStorageReader(tmp_path).read_metadata()


def spread(rank, size):
    import os

    import mica.distributed.checkpoint as dcp
    from mica.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
    from mica.distributed.tensor import Shard, distribute_tensor

    folder = os.environ["FOLDER"]
    mesh = dist.init_device_mesh("cpu", (size,))
    whole = mica.arange(20).view(5, 4)
    states = {"spread": distribute_tensor(whole, mesh, [Shard(0)]), "same": mica.ones(3)}
    try:
        dcp.save(states, storage_writer=HuggingFaceStorageWriter(folder))
        refused = ""
    except dcp.CheckpointException as error:
        refused = str(error)
    dcp.save(states, storage_writer=HuggingFaceStorageWriter(folder, save_distributed=True, enable_consolidation=True))
    again = {"spread": distribute_tensor(mica.zeros_like(whole), mesh, [Shard(1)]), "same": mica.zeros(3)}
    dcp.load(again, storage_reader=HuggingFaceStorageReader(os.path.join(folder, "sharded")))
    right = mica.equal(again["spread"].full_tensor(), whole) and mica.equal(again["same"], mica.ones(3))
    return ["pass save_distributed=True" in refused, right]


def test_pieces_of_several_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("FOLDER", str(tmp_path))
    assert ranks.run(2, spread) == [[True, True]] * 2
    files = sorted(each.name for each in (tmp_path / "sharded").iterdir())
    assert files == [f"shard-0000{rank}-model-00001-of-00001.safetensors" for rank in (1, 2)]
    joined = mica.load(tmp_path / "model-00001-of-00001.safetensors")
    assert mica.equal(joined["spread"], mica.arange(20).view(5, 4)) and mica.equal(joined["same"], mica.ones(3))
    assert (tmp_path / "model.safetensors.index.json").exists()
