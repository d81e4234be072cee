"""Starting and ending worlds, and groups of some ranks."""

import os
import subprocess
import sys
import threading
import time

import mica
import mica.distributed as dist
import pytest
import ranks
from ranks import error_of


def groups(rank, size):
    even, odd = dist.new_group([0, 2]), dist.new_group([1, 3])
    mine, other = (even, odd) if rank % 2 == 0 else (odd, even)
    x = mica.full((3,), float(rank))
    dist.all_reduce(x, group=mine)
    out = [x.tolist(), dist.get_rank(other), dist.get_world_size(mine), dist.get_process_group_ranks(mine)]
    out.append([dist.get_global_rank(mine, 1), dist.get_group_rank(mine, rank)])
    y = mica.full((1,), float(rank))
    dist.broadcast(y, src=2 + rank % 2, group=mine)  # a root by its rank in the world
    z = mica.full((1,), float(rank))
    dist.broadcast(z, group=mine, group_src=0)
    out.append([y.item(), z.item()])
    own, every = dist.new_subgroups(2)
    dist.all_reduce(w := mica.ones(1), group=own)
    out.append([len(every), w.item(), dist.get_process_group_ranks(own)])
    split = dist.split_group(split_ranks=[[0, 3], [1, 2]])
    out.append(dist.get_process_group_ranks(split))
    dist.destroy_process_group(own)
    out.append(error_of(dist.get_process_group_ranks, own)[:10])
    local = dist.new_group([rank], use_local_synchronization=True)
    out.append([local.size(), dist.get_pg_count()])
    pair = dist.new_group([rank // 2 * 2, rank // 2 * 2 + 1], use_local_synchronization=True)
    dist.all_reduce(v := mica.ones(1), group=pair)
    out.append(v.item())
    out.append(error_of(dist.new_subgroups, 3))
    dist.barrier()
    return out


def test_groups_of_some_ranks():
    for rank, found in enumerate(ranks.run(4, groups)):
        first = rank % 2
        assert found[:4] == [[2.0 + 2 * first] * 3, -1, 2, [first, first + 2]]
        assert found[4] == [first + 2, rank // 2] and found[5] == [2 + first, first]
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        assert found[6] == [2, 2, pair] and found[7] == ([0, 3] if rank in (0, 3) else [1, 2])
        assert found[8] == "ValueError" and found[9][0] == 1 and found[10] == 2
        assert "must be divisible by 'group_size=3'" in found[11]


def again(rank, size):
    out = []
    for turn in range(3):
        dist.init_process_group("gloo")
        x = mica.full((2,), float(turn))
        dist.all_reduce(x)
        out.append(x.tolist())
        dist.destroy_process_group()
        out.append(dist.is_initialized())
    return out, error_of(dist.all_reduce, mica.ones(1))


def test_a_world_is_started_again():
    for values, error in ranks.run(2, again, init=""):
        assert values == [[0, 0], False, [2, 2], False, [4, 4], False]
        assert "Default process group has not been initialized" in error


def by_url(rank, size):
    folder, port = os.environ["MICA_TEST_FOLDER"], os.environ["MASTER_PORT"]
    out = []
    for turn, url in enumerate([f"tcp://127.0.0.1:{port}", f"file://{folder}/meeting"]):
        dist.init_process_group("gloo", init_method=url, rank=rank, world_size=size)
        dist.all_reduce(x := mica.full((1,), turn + 1.0))
        out.append(x.item())
        dist.destroy_process_group()
    store = dist.FileStore(f"{folder}/store", size)
    dist.init_process_group(store=store, rank=rank, world_size=size)
    dist.all_reduce(x := mica.ones(1))
    return [*out, x.item(), dist.get_backend(), dist.get_backend_config()]


def test_addresses_to_meet_at():
    assert ranks.run(2, by_url, init="") == [[2, 4, 2, "cpu:gloo,cuda:nccl", "cpu:gloo,cuda:nccl"]] * 2


def test_what_is_wrong_at_the_start(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="port number missing"):
        dist.init_process_group(init_method="tcp://host", rank=0, world_size=2)
    with pytest.raises(ValueError, match="rank parameter missing"):
        dist.init_process_group(init_method="tcp://host:1", world_size=2)
    with pytest.raises(RuntimeError, match="No rendezvous handler for nope://"):
        dist.init_process_group(init_method="nope://x", rank=0, world_size=2)
    with pytest.raises(AssertionError, match="Cannot specify both init_method and store"):
        dist.init_process_group(init_method="env://", store=dist.HashStore())
    with pytest.raises(ValueError, match="Unknown backend 'nope'"):
        dist.init_process_group("nope")
    with pytest.raises(TypeError, match="Expected timeout argument to be of type datetime.timedelta"):
        dist.init_process_group("gloo", timeout=3)
    assert not dist.is_initialized()


def test_backends_of_others():
    class Lonely(dist.ProcessGroup):
        def __init__(self, rank, size):
            super().__init__(rank, size)
            self.calls = []

        def getBackendName(self):
            return "lonely"

        def allreduce(self, tensors, opts=None):
            self.calls.append("allreduce")
            tensors[0].mul_(2)
            return dist.Work(tensors)

    dist.Backend.register_backend("lonely", lambda store, rank, size, timeout: Lonely(rank, size), devices=["cpu"])
    with pytest.raises(RuntimeError, match="lonely c10d backend creator function already exist"):
        dist.Backend.register_backend("lonely", None)
    dist.init_process_group("lonely", rank=0, world_size=4, store=dist.HashStore())
    try:
        x = mica.ones(2)
        dist.all_reduce(x)
        assert x.tolist() == [2, 2] and dist.group.WORLD.calls == ["allreduce"]
        assert (dist.get_world_size(), dist.get_backend()) == (4, "lonely")
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("given", [{"store": dist.HashStore()}, {}], ids=["store", "no store"])
def test_the_fake_backend(given):
    dist.init_process_group("fake", rank=3, world_size=8, **given)
    try:
        assert dist.get_rank() == 3 and dist.get_world_size() == 8 and dist.get_backend() == "fake"
        x = mica.ones(2)
        assert dist.all_reduce(x) is None and x.tolist() == [1, 1]
        dist.all_gather_into_tensor(mica.zeros(16), x)
        dist.barrier()
        dist.send(x, 1)
        assert dist.all_reduce(x, async_op=True).wait()
    finally:
        dist.destroy_process_group()


def test_a_hash_store_joins_no_processes():
    # Two threads of one process cannot be two ranks of a world: the world is the process's.
    errors = []

    def start():
        try:
            dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        except ValueError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(2)]
    for each in threads:
        each.start()
        each.join()
    dist.destroy_process_group()
    assert errors == ["trying to initialize the default process group twice!"]


STOPS = """
import mica.distributed as dist
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
def work():
    for value in (41, 42):
        dist.breakpoint(skip=1)
    return "done"
print(work())
dist.destroy_process_group()
"""


def test_a_breakpoint_stops_one_rank(tmp_path):
    (tmp_path / "program.py").write_text(STOPS)
    command = [sys.executable, str(tmp_path / "program.py")]
    told = "up\np 'value is', value\nc\n"
    done = subprocess.run(
        command, input=told, env={**os.environ, "PYTHONPATH": str(ranks.PACKAGE.parent)}, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "dist.breakpoint(rank=0)" in done.stdout and "('value is', 42)" in done.stdout
    assert "41" not in done.stdout and done.stdout.rstrip().endswith("done")


def waits_for_a_breakpoint(rank, size):
    import pdb

    def look_around(self, *args):
        time.sleep(1)
        self.set_continue()

    pdb.Pdb.interaction = look_around
    start = time.monotonic()
    dist.breakpoint(rank=1)
    tensors = [mica.full((3,), float(rank)), mica.full((2, 2), float(rank))]
    dist._broadcast_coalesced(dist.group.WORLD, tensors, 100, 1)
    dist._verify_params_across_processes(dist.group.WORLD, tensors)
    wrong = error_of(dist._verify_params_across_processes, dist.group.WORLD, [mica.zeros(2 + rank)])
    return time.monotonic() - start, [t.sum().item() for t in tensors], wrong


def test_other_ranks_wait_at_a_breakpoint():
    for seconds, sums, wrong in ranks.run(2, waits_for_a_breakpoint):
        assert seconds >= 0.9 and sums == [3, 4] and "expects same model" in wrong
