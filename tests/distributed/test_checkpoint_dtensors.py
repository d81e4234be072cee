"""Checkpoints of DTensors: saved in one placement, loaded in another, by other numbers of ranks, from torch's folders."""

import sys
import warnings
from pathlib import Path

import mica
import mica.distributed.checkpoint as dcp
import ranks
from mica.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

RECORDED = Path(__file__).parent.parent / "recorded" / "files" / "checkpoints"
START = """
import warnings
import mica.distributed.checkpoint as dcp
from mica.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
warnings.simplefilter("ignore")
dist.init_process_group("gloo")
"""


def save_and_load(rank, size):
    from mica.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, init_device_mesh

    mesh, grid = init_device_mesh("cpu", (size,)), init_device_mesh("cpu", (2, size // 2))
    whole = mica.arange(77.0).reshape(11, 7)
    ways = {
        "rows": (mesh, [Shard(0)]), "columns": (mesh, [Shard(1)]), "same": (mesh, [Replicate()]),
        "both": (grid, [Shard(0), Shard(1)]), "twice": (grid, [Shard(0), Shard(0)]), "half": (grid, [Replicate(), Shard(1)]),
    }  # fmt: skip
    state = {name: distribute_tensor(whole + place, *way) for place, (name, way) in enumerate(ways.items())}
    state["rows"].requires_grad_()
    dcp.save(state, checkpoint_id=sys.argv[1])
    # Each is loaded in the placement of the next one.
    order = list(ways)
    other = dict(zip(order, [*order[1:], order[0]], strict=True))
    target = {name: distribute_tensor(mica.zeros(11, 7), *ways[other[name]]) for name in ways}
    dcp.load(target, checkpoint_id=sys.argv[1])
    right = [mica.equal(target[name].full_tensor(), whole + place) for place, name in enumerate(ways)]
    partial = target["rows"].redistribute(mesh, [Replicate()])
    refused = ""
    try:
        dcp.save({"a": type(partial).from_local(whole, mesh, [Partial()])}, checkpoint_id=sys.argv[1] + "_refused")
    except dcp.CheckpointException as error:
        refused = str(error)
    return right, refused


def test_dtensors_are_loaded_in_other_placements(tmp_path):
    folder = str(tmp_path / "saved")
    for right, refused in ranks.run(4, save_and_load, init=START, script_arguments=[folder]):
        assert right == [True] * 6 and "redistribute it first" in refused
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = _load_state_dict_from_keys(checkpoint_id=folder)
    for place, name in enumerate(["rows", "columns", "same", "both", "twice", "half"]):
        assert mica.equal(loaded[name], mica.arange(77.0).reshape(11, 7) + place), name


def of_torchs(rank, size):
    from mica.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    mesh, whole = init_device_mesh("cpu", (size,)), mica.arange(35.0).reshape(5, 7)
    # Cut the other way than torch's ranks did.
    state = {
        name: distribute_tensor(mica.zeros(5, 7), mesh, [Shard(dim)]) for name, dim in (("rows", 1), ("columns", 0))
    }
    dcp.load(state, checkpoint_id=sys.argv[1])
    return [mica.equal(state[name].full_tensor(), whole + more) for name, more in (("rows", 0), ("columns", 100))]


def test_torchs_dtensors_are_loaded_cut_the_other_way():
    arguments = [str(RECORDED / "of_two")]
    assert ranks.run(2, of_torchs, init=START, script_arguments=arguments) == [[True, True]] * 2
