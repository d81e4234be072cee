"""Meshes of ranks: values are those of torch 2.13 for the same calls."""

import pickle

import mica
import mica.distributed as dist
import pytest
import ranks
from mica.distributed.device_mesh import DeviceMesh, init_device_mesh


@pytest.fixture
def rank5():
    dist.init_process_group("fake", rank=5, world_size=8, store=dist.HashStore())
    yield
    dist.destroy_process_group()


def test_a_mesh_and_its_slices(rank5):
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    assert repr(mesh) == "DeviceMesh((dp=2, tp=4), 'cpu', stride=(4, 1))"
    assert (mesh.shape, mesh.ndim, mesh.size(), mesh.size(0), mesh.size("tp")) == ((2, 4), 2, 8, 2, 4)
    assert (mesh.get_rank(), mesh.get_local_rank("tp"), mesh.get_local_rank(0), mesh.get_coordinate()) == (
        5,
        1,
        1,
        (1, 1),
    )
    assert mesh.mesh.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]] and mesh.mesh.dtype == mica.int32
    assert mesh["tp"].mesh.tolist() == [4, 5, 6, 7] and mesh["dp"].mesh.tolist() == [1, 5] and mesh["dp", "tp"] is mesh
    assert repr(mesh["tp"]) == "DeviceMesh((tp=4), 'cpu', stride=(1,))" and mesh["tp"].get_coordinate() == (1,)
    assert mesh["tp"] == mesh["tp"] and hash(mesh["tp"]) == hash(mesh["tp"]) and mesh["tp"] != mesh["dp"]
    assert mesh["tp"]._get_root_mesh() is mesh
    assert [dist.get_process_group_ranks(each) for each in mesh.get_all_groups()] == [[1, 5], [4, 5, 6, 7]]
    assert mesh["dp"].get_group() is mesh.get_group("dp") and mesh.get_group("dp").group_desc == "mesh_dp"
    copy = pickle.loads(pickle.dumps(mesh["tp"]))
    assert copy == mesh["tp"] and copy.mesh.tolist() == [4, 5, 6, 7]


def test_dimensions_as_one(rank5):
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("a", "b", "c"))
    both = mesh["b", "c"]._flatten("bc")
    assert both.mesh.tolist() == [4, 5, 6, 7] and dist.get_process_group_ranks(both.get_group()) == [4, 5, 6, 7]
    assert mesh["a", "bc"].mesh.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert repr(mesh["a", "c"]) == "DeviceMesh((a=2, c=2), 'cpu', stride=(4, 1))"
    assert mesh["a", "c"].mesh.tolist() == [[0, 1], [4, 5]]
    assert repr(mesh._flatten()) == "DeviceMesh((a_b_c=8), 'cpu', stride=(1,))"


def test_other_meshes(rank5):
    world = DeviceMesh("cpu", list(range(8)))
    assert world.get_group() is dist.group.WORLD and world.get_local_rank() == 5
    some = DeviceMesh("cpu", [[0, 1], [4, 5]])
    assert repr(some) == "DeviceMesh((2, 2), 'cpu', stride=(2, 1))" and some.get_coordinate() == (1, 1)
    assert [dist.get_process_group_ranks(each) for each in some.get_all_groups()] == [[1, 5], [4, 5]]
    assert init_device_mesh("cpu", (2, 2)).get_coordinate() is None
    again = DeviceMesh.from_group(some.get_all_groups(), "cpu", mesh=some.mesh, mesh_dim_names=("x", "y"))
    assert again.get_group("y") is some.get_group(1)
    one = DeviceMesh.from_group(some.get_group(1), "cpu", mesh_dim_names=("y",))
    assert one.mesh.tolist() == [4, 5] and one.get_local_rank() == 1


def test_what_is_wrong(rank5):
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    for names, words in (
        (("tp", "dp"), "should be in ascending order"),
        ("x", r"Valid mesh_dim_names are \['dp', 'tp'\]"),
    ):
        with pytest.raises(KeyError, match=words):
            mesh[names]
    with pytest.raises(RuntimeError, match="Found the DeviceMesh have 2 dimensions"):
        mesh.get_group()
    with pytest.raises(RuntimeError, match="`mesh_dim` needs to be specified"):
        mesh.get_local_rank()
    with pytest.raises(RuntimeError, match="Each mesh_dim_name must be unique"):
        init_device_mesh("cpu", (2, 4), mesh_dim_names=("a", "a"))
    with pytest.raises(RuntimeError, match="should have same length"):
        init_device_mesh("cpu", (2, 4), mesh_dim_names=("a",))
    with pytest.raises(RuntimeError, match="Device type with index is not supported but got cpu:0"):
        init_device_mesh("cpu:0", (8,))
    with pytest.raises(RuntimeError, match="Mesh should not be bigger than default world size 8, but found 16 ranks!"):
        init_device_mesh("cpu", (16,))
    with pytest.raises(RuntimeError, match="Cannot slice a DeviceMesh without mesh_dim_names"):
        init_device_mesh("cpu", (2, 4))["dp"]


def meshes(rank, size):
    from mica.distributed import _functional_collectives as fc

    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    x = mica.full((1,), float(rank))
    along = [fc.all_reduce(x, "sum", mesh["dp"]).item(), fc.all_reduce(x, "sum", (mesh, 1)).item()]
    flat = mesh._flatten("all")
    dist.all_reduce(x, group=flat.get_group())
    return along, x.item()


def test_collectives_along_dimensions():
    assert ranks.run(4, meshes, init="") == [[[2, 1], 6], [[4, 1], 6], [[2, 5], 6], [[4, 5], 6]]
