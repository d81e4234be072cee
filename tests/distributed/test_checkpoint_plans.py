"""Plans of checkpoints: who writes what, and which pieces a box is read from."""

import dataclasses

import mica
import mica.distributed.checkpoint as dcp
import pytest
from mica.distributed.checkpoint._dedup_save_plans import dedup_save_plans
from mica.distributed.checkpoint.default_planner import (
    DefaultSavePlanner,
    _create_default_local_metadata,
    _validate_global_plan,
    create_default_global_save_plan,
)
from mica.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, TensorStorageMetadata
from mica.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from mica.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
from spread import parts_of
from states import blank, equal

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")


def _tensor_of(*boxes, size):
    chunks = [ChunkStorageMetadata(mica.Size(offsets), mica.Size(sizes)) for offsets, sizes in boxes]
    whole = _create_default_local_metadata({"a": mica.zeros(size)}).state_dict_metadata["a"]
    return TensorStorageMetadata(whole.properties, mica.Size(size), chunks)


def test_boxes_are_read_from_pieces_however_they_were_cut():
    whole = mica.arange(60.0).reshape(10, 6)
    saved = [((0, 0), (4, 6)), ((4, 0), (6, 2)), ((4, 2), (6, 4))]
    pieces = [whole[o[0] : o[0] + s[0], o[1] : o[1] + s[1]] for o, s in saved]
    metadata = _tensor_of(*saved, size=(10, 6))
    for offsets, sizes in [((0, 0), (10, 6)), ((3, 1), (5, 4)), ((9, 5), (1, 1)), ((0, 0), (4, 6)), ((2, 2), (0, 3))]:
        wanted = ChunkStorageMetadata(mica.Size(offsets), mica.Size(sizes))
        filled = mica.full(sizes, -1.0)
        for item in create_read_items_for_chunk_list("a", metadata, [wanted]):
            source, target = pieces[item.storage_index.index], filled
            for dim, (there, here, length) in enumerate(
                zip(item.storage_offsets, item.dest_offsets, item.lengths, strict=True)
            ):
                source, target = source.narrow(dim, there, length), target.narrow(dim, here, length)
            assert (target == -1).all()  # nothing is read twice
            target.copy_(source)
        expected = whole[offsets[0] : offsets[0] + sizes[0], offsets[1] : offsets[1] + sizes[1]]
        assert mica.equal(filled, expected)


def test_plans_that_would_lose_elements_are_refused():
    one_rank, two_ranks = [object()], [object(), object()]
    good = _tensor_of(((0,), (2,)), ((2,), (3,)), size=(5,))
    assert _validate_global_plan(two_ranks, Metadata({"a": good})) == []
    for bad, text in [
        (_tensor_of(((0,), (2,)), ((1,), (4,)), size=(5,)), "overlapping chunks"),
        (_tensor_of(((0,), (2,)), ((4,), (4,)), size=(5,)), "out of bounds chunk"),
        (_tensor_of(((0,), (2,)), ((2,), (2,)), size=(5,)), "invalid fill tensor-volume: 5 chunks-volume: 4"),
    ]:
        assert any(text in error for error in _validate_global_plan(two_ranks, Metadata({"a": bad})))
    assert _validate_global_plan(one_rank, Metadata({"a": _tensor_of(((0,), (2,)), size=(5,))})) == []


def test_what_all_ranks_have_is_written_once_and_evenly():
    def plan():
        planner = DefaultSavePlanner()
        planner.set_up_planner({f"t{each}": mica.zeros(10) for each in range(6)} | {"step": 1})
        return planner.create_local_plan()

    plans = dedup_save_plans([plan(), plan(), plan()])
    counts = [len(each.items) for each in plans]
    assert sum(counts) == 7 and max(counts) - min(counts) <= 1
    assert [len(each.items) for each in dedup_save_plans([plan(), plan()], save_to_lowest_rank=True)] == [7, 0]
    _, metadata = create_default_global_save_plan(plans)
    assert len(metadata.state_dict_metadata) == 7


def test_plans_are_kept_where_that_was_asked_for(tmp_path, monkeypatch):
    class Planner(DefaultSavePlanner):
        made = 0

        def _create_global_plan(self, all_plans):
            type(self).made += 1
            return super()._create_global_plan(all_plans)

    def save(state, folder):
        dcp.save(state, checkpoint_id=tmp_path / folder, planner=Planner(enable_plan_caching=True))
        loaded = blank(state)
        dcp.load(loaded, checkpoint_id=tmp_path / folder)
        assert equal(loaded, state)

    save({"a": mica.ones(2)}, "0")
    save({"a": mica.ones(2) * 2}, "1")
    assert Planner.made == 1
    save({"a": mica.ones(2) * 3, "b": mica.ones(1)}, "2")
    assert Planner.made == 2


def test_planners_of_a_program_see_every_value(tmp_path):
    class Half(dcp.DefaultSavePlanner):
        def create_local_plan(self):
            plan = super().create_local_plan()
            for item in plan.items:
                if item.tensor_data is not None:
                    item.tensor_data.properties.dtype = mica.float16
            return plan

        def transform_object(self, write_item, object):
            made = super().transform_object(write_item, object)
            return made.half() if isinstance(made, mica.Tensor) else made

    class Renamed(dcp.DefaultLoadPlanner):
        def lookup_tensor(self, index):
            return super().lookup_tensor(dataclasses.replace(index))

    dcp.save({"a": mica.tensor([1.0, 2.0])}, checkpoint_id=tmp_path, planner=Half())
    assert _load_state_dict_from_keys(checkpoint_id=tmp_path)["a"].dtype == mica.float16
    state = {"a": mica.zeros(2)}
    dcp.load(state, checkpoint_id=tmp_path, planner=Renamed())
    assert state["a"].tolist() == [1, 2]


@pytest.mark.parametrize("saved_by", [((2, 1), (0, None)), ((3, 2), (0, 1)), ((2, 2), (0, 0)), ((1, 4), (None, 1))])
@pytest.mark.parametrize("loaded_by", [((1, 1), (None, None)), ((4, 1), (0, None)), ((2, 3), (1, 0))])
def test_a_tensor_is_saved_by_some_ranks_and_loaded_by_others(tmp_path, saved_by, loaded_by):
    """Each rank by hand: what the ranks would send each other is passed on here."""
    whole = mica.arange(77.0).reshape(11, 7)
    planners, plans = [], []
    for part in parts_of(whole, *saved_by):
        planner = DefaultSavePlanner()
        planner.set_up_planner({"a": part})
        planners.append(planner)
        plans.append(planner.create_local_plan())
    writer = dcp.FileSystemWriter(tmp_path)
    writer.set_up_storage_writer(True)
    writer.fs.mkdir(tmp_path)
    global_plans, metadata = planners[0].create_global_plan(plans)
    results = [
        writer.write_data(planner.finish_plan(plan), planner).value()
        for planner, plan in zip(planners, writer.prepare_global_plan(global_plans), strict=True)
    ]
    writer.finish(metadata, results)
    for expected, part in zip(parts_of(whole, *loaded_by), parts_of(mica.zeros(11, 7), *loaded_by), strict=True):
        reader, planner = dcp.FileSystemReader(tmp_path), dcp.DefaultLoadPlanner()
        read = reader.read_metadata()
        planner.set_up_planner({"a": part}, read)
        reader.set_up_storage_reader(read, True)
        reader.read_data(planner.create_local_plan(), planner)
        assert mica.equal(part.to_local(), expected.to_local())


def test_placements_whose_parts_are_no_boxes_are_refused():
    (tensor,) = parts_of(mica.zeros(4), (1, 1), (0, None))
    tensor.placements[0].split_factor = 2
    planner = DefaultSavePlanner()
    planner.set_up_planner({"a": tensor})
    with pytest.raises(NotImplementedError, match="it has to say its boxes itself"):
        planner.create_local_plan()
