"""torch.distributed.checkpoint in one process: torch's folders, plans, pieces however they are cut, damaged metadata."""

import io
import pickle
import shutil
import warnings
from pathlib import Path

import mica
import mica.distributed.checkpoint as dcp
import pytest
from mica.distributed.checkpoint import _metadata_file
from mica.distributed.checkpoint._nested_dict import flatten_state_dict, unflatten_state_dict
from mica.distributed.checkpoint.default_planner import (
    DefaultSavePlanner,
)
from mica.distributed.checkpoint.format_utils import (
    BroadcastingTorchSaveReader,
    DynamicMetaLoadPlanner,
    dcp_to_torch_save,
    torch_save_to_dcp,
)
from mica.distributed.checkpoint.metadata import Metadata, MetadataIndex
from mica.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
from states import blank, equal

RECORDED = Path(__file__).parent.parent / "recorded" / "files" / "checkpoints"
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")


def _state():
    """What tests/recorded/record_distributed_checkpoints.py saves from one process."""
    return {
        "model": {"weight": mica.arange(12.0).reshape(3, 4), "count": mica.tensor(7), "none": mica.empty(0, 3)},
        "optim": {"state": {0: {"step": mica.tensor(3.0)}}, "param_groups": [{"lr": 0.5, "betas": (0.9, 0.99), "params": [0]}]},
        "list": [mica.ones(2, dtype=mica.bfloat16), {"flag": mica.tensor([True, False])}],
        "words": ["a", "b"],
        "step": 3,
    }  # fmt: skip


# ---- folders


def test_a_folder_of_torchs_is_read():
    state, expected = blank(_state()), _state()
    weight = state["model"]["weight"]
    state["step"], state["words"] = 0, []
    dcp.load(state, checkpoint_id=RECORDED / "of_one")
    assert equal(state, expected) and state["model"]["weight"] is weight


def test_a_folder_that_two_processes_of_torchs_wrote_is_read_by_one():
    whole = mica.arange(35.0).reshape(5, 7)
    loaded = _load_state_dict_from_keys(checkpoint_id=str(RECORDED / "of_two"))
    expected = {"rows": whole, "columns": whole + 100, "same": whole + 200, "plain": whole + 300, "step": 11}
    assert equal(loaded, expected)
    assert _load_state_dict_from_keys("step", checkpoint_id=RECORDED / "of_two") == {"step": 11}


def test_what_is_saved_is_loaded(tmp_path):
    assert isinstance(dcp.save(_state(), checkpoint_id=tmp_path / "a"), Metadata)
    assert sorted(each.name for each in (tmp_path / "a").iterdir()) == [".metadata", "__0_0.distcp"]
    state = blank(_state())
    dcp.load(state, storage_reader=dcp.FileSystemReader(tmp_path / "a"))
    assert equal(state, _state())


def test_the_metadata_is_torchs(tmp_path):
    dcp.save(_state(), checkpoint_id=tmp_path / "a")
    read = dcp.FileSystemReader(RECORDED / "of_one").read_metadata()
    own = dcp.FileSystemReader(tmp_path / "a").read_metadata()
    assert own.state_dict_metadata == read.state_dict_metadata and own.planner_data == read.planner_data
    assert (own.version, own.storage_data.keys()) == (read.version, read.storage_data.keys())
    data = (tmp_path / "a" / ".metadata").read_bytes()
    assert b"torch.distributed.checkpoint.metadata" in data and b"mica" not in data.replace(str(tmp_path).encode(), b"")


@pytest.mark.parametrize("options", [{"thread_count": 3}, {"single_file_per_rank": False}, {"sync_files": False}])
def test_options_of_the_writer(tmp_path, options):
    dcp.save(_state(), storage_writer=dcp.FileSystemWriter(tmp_path, **options))
    state = blank(_state())
    dcp.load(state, checkpoint_id=tmp_path)
    assert equal(state, _state())


def test_views_bring_only_their_own_elements(tmp_path):
    large = mica.arange(1_000_000.0).reshape(1000, 1000)
    dcp.save({"part": large[3:5, ::2], "turned": large[:2, :3].t()}, checkpoint_id=tmp_path)
    assert (tmp_path / "__0_0.distcp").stat().st_size < 20_000
    state = {"part": mica.zeros(2, 500), "turned": mica.zeros(3, 2)}
    dcp.load(state, checkpoint_id=tmp_path)
    assert mica.equal(state["part"], large[3:5, ::2]) and mica.equal(state["turned"], large[:2, :3].t())


def test_a_folder_is_written_over_or_refused(tmp_path):
    dcp.save({"a": mica.zeros(2)}, checkpoint_id=tmp_path)
    with pytest.warns(UserWarning, match="Detected an existing checkpoint"):
        dcp.save({"a": mica.ones(2)}, checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException, match="Checkpoint already exists"):
        dcp.save({"a": mica.zeros(2)}, storage_writer=dcp.FileSystemWriter(tmp_path, overwrite=False))
    state = {"a": mica.zeros(2)}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state["a"].tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:Detected an existing checkpoint:UserWarning")
def test_a_writer_that_dies_leaves_no_mixture_of_two_checkpoints(tmp_path):
    dcp.save({"a": mica.zeros(2), "b": mica.zeros(2)}, checkpoint_id=tmp_path)

    class Dies(DefaultSavePlanner):
        def resolve_data(self, write_item):
            if write_item.index.fqn == "b":
                raise OSError("no space left")
            return super().resolve_data(write_item)

    with pytest.raises(dcp.CheckpointException, match="no space left"):
        dcp.save({"a": mica.ones(2), "b": mica.ones(2)}, checkpoint_id=tmp_path, planner=Dies())
    with pytest.raises(dcp.CheckpointException, match="No such file"):
        dcp.load({"a": mica.zeros(2)}, checkpoint_id=tmp_path)


def test_async_save_saves_what_was_there_when_it_was_called(tmp_path):
    state = {"a": mica.ones(1000), "nested": {"b": mica.tensor(2.0)}, "step": 1}
    future = dcp.async_save(state, checkpoint_id=tmp_path)
    state["a"].zero_()
    state["nested"]["b"].zero_()
    assert isinstance(future.result(), Metadata)
    loaded = {"a": mica.zeros(1000), "nested": {"b": mica.tensor(0.0)}, "step": 0}
    dcp.load(loaded, checkpoint_id=tmp_path)
    assert loaded["a"].sum() == 1000 and loaded["nested"]["b"] == 2 and loaded["step"] == 1
    failed = dcp.async_save({"a": mica.ones(2)}, storage_writer=dcp.FileSystemWriter("/proc/nowhere"))
    with pytest.raises(dcp.CheckpointException):
        failed.result()


def test_stateful_objects_are_asked_and_told(tmp_path):
    class Counter:
        def __init__(self, count):
            self.count = count

        def state_dict(self):
            return {"count": self.count, "tensor": mica.full((2,), float(self.count))}

        def load_state_dict(self, state_dict):
            self.count = state_dict["count"]
            assert state_dict["tensor"].tolist() == [float(self.count)] * 2

    model = mica.nn.Linear(3, 2)
    dcp.save({"counter": Counter(5), "model": model}, checkpoint_id=tmp_path)
    counter, other = Counter(0), mica.nn.Linear(3, 2)
    dcp.load({"counter": counter, "model": other}, checkpoint_id=tmp_path)
    assert counter.count == 5 and mica.equal(other.weight, model.weight)


def test_tensors_of_the_device_meta_get_memory(tmp_path):
    dcp.save({"a": mica.arange(3.0)}, checkpoint_id=tmp_path)
    state = {"a": mica.empty(3, device="meta")}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state["a"].tolist() == [0, 1, 2]


def test_files_of_torch_save_and_folders(tmp_path):
    state = _state()
    mica.save(state, tmp_path / "state.pt")
    torch_save_to_dcp(tmp_path / "state.pt", tmp_path / "folder")
    dcp_to_torch_save(tmp_path / "folder", tmp_path / "again.pt")
    again = mica.load(tmp_path / "again.pt")
    state["optim"]["state"] = {"0": state["optim"]["state"][0]}  # keys of dictionaries become text
    assert equal(again, state)
    mica.save({"a": mica.arange(4.0)}, tmp_path / "tensors.pt")
    filled = {"a": mica.zeros(4)}
    dcp.load(
        filled,
        checkpoint_id=tmp_path / "tensors.pt",
        storage_reader=BroadcastingTorchSaveReader(),
        planner=DynamicMetaLoadPlanner(),
    )
    assert filled["a"].tolist() == [0, 1, 2, 3]


# ---- errors


def test_what_does_not_fit_is_an_error_and_changes_nothing(tmp_path):
    dcp.save({"a": mica.ones(2, 3), "step": 3}, checkpoint_id=tmp_path)
    target = mica.zeros(2, 3)
    for state, text in [
        ({"a": target, "b": mica.zeros(1)}, "Missing key in checkpoint state_dict: b."),
        ({"a": mica.zeros(3, 2)}, "Size mismatch between saved"),
        ({"a": 5}, "expected BytesStorageMetadata but found"),
    ]:
        with pytest.raises(dcp.CheckpointException, match=text):
            dcp.load(state, checkpoint_id=tmp_path)
        assert target.sum() == 0
    dcp.load(
        {"a": target, "b": mica.zeros(1)},
        checkpoint_id=tmp_path,
        planner=dcp.DefaultLoadPlanner(allow_partial_load=True),
    )
    assert target.sum() == 6
    with pytest.raises(RuntimeError, match="`checkpoint_id` must be specified"):
        dcp.save({})
    with pytest.raises(ValueError, match="duplicated flatten key a.b"):
        flatten_state_dict({"a": {"b": mica.ones(1)}, "a.b": mica.ones(1)})


def test_a_truncated_file_is_an_error(tmp_path):
    shutil.copytree(RECORDED / "of_one", tmp_path / "a")
    data = (tmp_path / "a" / "__0_0.distcp").read_bytes()
    (tmp_path / "a" / "__0_0.distcp").write_bytes(data[: len(data) // 2])
    with pytest.raises(dcp.CheckpointException, match="is truncated"):
        dcp.load(blank(_state()), checkpoint_id=tmp_path / "a")


class _Attack:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def test_metadata_that_runs_code_is_refused(tmp_path):
    marker = tmp_path / "ran"
    for attack in (pickle.dumps(_Attack(marker)), pickle.dumps({"a": _Attack(marker)}, 2)):
        (tmp_path / ".metadata").write_bytes(attack)
        with pytest.raises(dcp.CheckpointException, match="cannot be read as the metadata of a checkpoint"):
            dcp.load({"a": mica.zeros(1)}, checkpoint_id=tmp_path)
    assert not marker.exists()


def test_metadata_that_points_out_of_its_folder_or_says_nonsense_is_refused(tmp_path):
    reader = dcp.FileSystemReader(RECORDED / "of_one")
    for path in ("../../secret", "/etc/passwd"):
        metadata = reader.read_metadata()
        for info in metadata.storage_data.values():
            info.relative_path = path
        with pytest.raises(pickle.UnpicklingError, match="is no file of its folder"):
            _metadata_file.read(_metadata_file.write(metadata), "x")
    metadata = reader.read_metadata()
    metadata.state_dict_metadata["model.weight"].chunks[0].offsets = mica.Size([0])
    with pytest.raises(pickle.UnpicklingError, match="other dimensions"):
        _metadata_file.read(_metadata_file.write(metadata), "x")
    data = _metadata_file.write(reader.read_metadata())
    for end in range(0, len(data), 37):
        with pytest.raises(pickle.UnpicklingError, match="cannot be read"):
            _metadata_file.read(data[:end], "x")
    with pytest.raises(pickle.UnpicklingError, match="it holds something else"):
        _metadata_file.read(pickle.dumps({"a": 1}), "x")


def test_nested_dictionaries_become_flat_and_nested_again():
    state = {"a": {"b": [mica.ones(1), {"c": 2}], "d": [1, 2]}, 3: "x"}
    flat, paths = flatten_state_dict(state)
    assert list(flat) == ["a.b.0", "a.b.1.c", "a.d", "3"] and paths["a.b.1.c"] == ("a", "b", 1, "c")
    assert equal(unflatten_state_dict(flat, paths), {"a": state["a"], "3": "x"})
    assert MetadataIndex("a", [1], 2) == MetadataIndex("a", (1,), 3) != MetadataIndex("a", [2])


def test_older_forms_of_calls(tmp_path):
    with pytest.warns(FutureWarning, match="`save_state_dict` is deprecated"):
        dcp.save_state_dict({"a": mica.ones(1)}, dcp.FileSystemWriter(tmp_path), no_dist=True)
    state = {"a": mica.zeros(1)}
    with pytest.warns(FutureWarning, match="`load_state_dict` is deprecated"):
        dcp.load_state_dict(state, dcp.FileSystemReader(tmp_path), no_dist=True)
    assert state["a"] == 1
    with pytest.warns(UserWarning, match="argument order of load has been changed"), warnings.catch_warnings():
        dcp.load(state, dcp.FileSystemReader(tmp_path))


def test_values_of_other_classes_are_loaded_as_torch_does(tmp_path):
    dcp.save({"path": Path("/a/b"), "bytes": io.BytesIO(b"x").getvalue()}, checkpoint_id=tmp_path)
    state = {"path": None, "bytes": None}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state == {"path": Path("/a/b"), "bytes": b"x"}


def test_ranks_may_save_without_asking_each_other(tmp_path):
    dcp.save(_state(), checkpoint_id=tmp_path, use_collectives=False)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["__0.metadata", "__0_0.distcp"]
    state = blank(_state())
    dcp.load(state, checkpoint_id=tmp_path)
    assert equal(state, _state())


def test_tensors_of_every_form(tmp_path):
    x = mica.arange(24.0).reshape(2, 3, 4)
    state = {
        "expanded": mica.ones(3, 1).expand(3, 5), "strided": x[:, ::2, 1:], "turned": x.permute(2, 0, 1), "flipped": x.flip(0),
        "conjugate": mica.tensor([1 + 2j, 3 - 1j]).conj(), "last": mica.ones(2, 3, 4, 5).to(memory_format=mica.channels_last),
        "parameter": mica.nn.Parameter(mica.ones(2)), "zero_dim": mica.tensor(5, dtype=mica.int8),
    }  # fmt: skip
    dcp.save(state, checkpoint_id=tmp_path)
    loaded = {name: mica.zeros(value.shape, dtype=value.dtype) for name, value in state.items()}
    dcp.load(loaded, checkpoint_id=tmp_path)
    for name, value in state.items():
        assert equal(loaded[name], value), name
