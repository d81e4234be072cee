"""Checkpoints that several processes save and load together."""

import sys
import warnings
from pathlib import Path

import mica
import mica.distributed as dist
import mica.distributed.checkpoint as dcp
import pytest
import ranks
from mica.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

RECORDED = Path(__file__).parent.parent / "recorded" / "files" / "checkpoints"
START = "import mica.distributed.checkpoint as dcp, warnings; warnings.simplefilter('ignore'); dist.init_process_group('gloo')"


def save(rank, size):
    from spread import parts_of

    whole = mica.arange(77.0).reshape(11, 7)
    state = {
        "rows": parts_of(whole, (size, 1), (0, None))[rank],
        "columns": parts_of(whole + 100, (1, size), (None, 1))[rank],
        "same": {str(each): whole + each for each in range(6)},
        "step": 5,
    }
    metadata = dcp.save(state, checkpoint_id=sys.argv[1])
    return sorted(metadata.state_dict_metadata), len(metadata.storage_data)


def load(rank, size):
    from spread import parts_of

    whole, zeros = mica.arange(77.0).reshape(11, 7), mica.zeros(11, 7)
    state = {
        "rows": parts_of(zeros, (size, 1), (0, None))[rank],
        "columns": parts_of(zeros, (size, 1), (0, None))[rank],  # cut the other way
        "same": {str(each): mica.zeros(11, 7) for each in range(6)},
        "step": 0,
    }
    expected = [parts_of(whole + more, (size, 1), (0, None))[rank].local for more in (0, 100)]
    dcp.load(state, checkpoint_id=sys.argv[1])
    return (
        mica.equal(state["rows"].local, expected[0])
        and mica.equal(state["columns"].local, expected[1])
        and all(mica.equal(state["same"][str(each)], whole + each) for each in range(6))
        and state["step"]
    )


def test_what_some_ranks_save_others_load(tmp_path):
    folder = str(tmp_path / "saved")
    (names, pieces), *others = ranks.run(2, save, init=START, script_arguments=[folder])
    assert others == [[names, pieces]] and names == ["columns", "rows", *(f"same.{each}" for each in range(6)), "step"]
    assert pieces == 11  # two tensors in two pieces each, all else once
    sizes = [(Path(folder) / f"__{rank}_0.distcp").stat().st_size for rank in range(2)]
    assert max(sizes) < 1.3 * min(sizes)
    for count in (3, 1):
        start = START if count > 1 else START.replace("dist.init_process_group('gloo')", "pass")
        assert ranks.run(count, load, init=start, script_arguments=[folder]) == [5] * count
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = _load_state_dict_from_keys({"rows", "columns"}, checkpoint_id=folder)
    assert mica.equal(whole["rows"] + 100, whole["columns"])


def of_torchs(rank, size):
    state = {name: mica.zeros(5, 7) for name in ("rows", "columns", "same", "plain")} | {"step": 0}
    dcp.load(state, checkpoint_id=sys.argv[1])
    return [float(state[name][4, 6]) for name in ("rows", "columns", "same", "plain")] + [state["step"]]


def fails(rank, size):
    bad = {"a": mica.ones(2), **({"b": mica.ones(3)} if rank == 1 else {})}
    texts = []
    try:
        dcp.load(bad, checkpoint_id=sys.argv[1])
    except dcp.CheckpointException as error:
        texts.append(str(error))
    dist.barrier()  # nobody was left behind in a collective
    future = dcp.async_save({"a": mica.full((3,), 7.0)}, checkpoint_id=sys.argv[2])
    future.result()
    state = {"a": mica.zeros(3)}
    dcp.load(state, checkpoint_id=sys.argv[2])
    return texts, state["a"].tolist()


def test_torchs_folder_is_loaded_and_failures_of_one_are_raised_by_all(tmp_path):
    assert (
        ranks.run(2, of_torchs, init=START, script_arguments=[str(RECORDED / "of_two")])
        == [
            [34, 134, 234, 334, 11],
        ]
        * 2
    )
    arguments = [str(RECORDED / "of_one"), str(tmp_path / "async")]
    for texts, loaded in ranks.run(2, fails, init=START, script_arguments=arguments):
        assert len(texts) == 1 and "(RANK 0)" in texts[0] and "(RANK 1)" in texts[0]
        assert "Missing key in checkpoint state_dict: a." in texts[0] and loaded == [7, 7, 7]


def broadcast(rank, size):
    from mica.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    mica.manual_seed(rank)
    model = mica.nn.Sequential(mica.nn.Linear(3, 4), mica.nn.BatchNorm1d(4))
    optimizer = mica.optim.AdamW(model.parameters(), lr=0.1 * (rank + 1))
    model(mica.randn(5, 3)).square().sum().backward()
    optimizer.step()
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    model_state, optim_state = get_state_dict(model, optimizer) if rank == 0 else ({}, {})
    set_model_state_dict(model, model_state, options=options)
    set_optimizer_state_dict(model, optimizer, optim_state, options=options)
    moments = sum(float(values["exp_avg"].sum()) for values in optimizer.state_dict()["state"].values())
    return float(model[0].weight.detach().sum()), moments, optimizer.param_groups[0]["lr"]


def test_rank_0_gives_its_state_to_all():
    first, second = ranks.run(2, broadcast)
    assert first == second and first[2] == pytest.approx(0.1)
