"""Tables that say which rank has which part of a tensor."""

import importlib.machinery
import sys
import types

import mica
import mica.distributed as dist
import pytest
from mica.distributed.tensor import Replicate, Shard, distribute_tensor
from mica.distributed.tensor.debug import visualize_sharding


@pytest.fixture
def drawn(monkeypatch):
    """What tabulate is given."""
    module, calls = types.ModuleType("tabulate"), []
    module.tabulate = lambda table, headers, showindex: calls.append((table, headers, showindex)) or "a table"
    module.__spec__ = importlib.machinery.ModuleSpec("tabulate", None)
    monkeypatch.setitem(sys.modules, "tabulate", module)
    return calls


def mesh_of(shape):
    size = 1
    for each in shape:
        size *= each
    dist.init_process_group("fake", rank=0, world_size=size)
    return dist.init_device_mesh("cpu", shape)


@pytest.mark.parametrize(
    ("shape", "sizes", "placements", "expected"),
    [
        ((2, 2), (4, 4), [Shard(0), Shard(1)],
         ([["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"]], ["Col 0-1", "Col 2-3"], ["Row 0-1", "Row 2-3"])),
        ((2, 2), (4, 4), [Replicate(), Shard(1)],
         ([["cpu:0,2", "cpu:1,3"]], ["Col 0-1", "Col 2-3"], ["Row 0-3"])),
        ((4,), (5,), [Shard(0)],
         ([["cpu:0"], ["cpu:1"], ["cpu:2"], ["cpu:3"]], ["Col 0-0"], ["Row 0-1", "Row 2-3", "Row 4-4", "Row 5-4"])),
        ((3,), (4, 4), [Shard(1)],
         ([["cpu:0", "cpu:1", "cpu:2"]], ["Col 0-1", "Col 2-3", "Col 4-3"], ["Row 0-3"])),
    ],
)  # fmt: skip
def test_tables(drawn, capsys, shape, sizes, placements, expected):
    mesh = mesh_of(shape)
    try:
        visualize_sharding(distribute_tensor(mica.ones(sizes), mesh, placements))
        visualize_sharding(distribute_tensor(mica.ones(0), mesh, [Replicate()] * len(shape)))
    finally:
        dist.destroy_process_group()
    assert drawn == [expected] and capsys.readouterr().out == "a table\n"


def test_what_cannot_be_drawn(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    mesh = mesh_of((2,))
    try:
        with pytest.raises(RuntimeError, match="visualize sharding supports only 1D or 2D DTensor"):
            visualize_sharding(distribute_tensor(mica.ones(2, 2, 2), mesh, [Shard(0)]))
        with pytest.raises(ValueError, match="`visualize_sharding` requires either `rich` or `tabulate`."):
            visualize_sharding(distribute_tensor(mica.ones(2), mesh, [Shard(0)]))
    finally:
        dist.destroy_process_group()
