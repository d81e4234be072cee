"""The backend 'mpi' on the MPI of this machine: what the other engine does, and how it ends."""

import time

import mica
import mica.distributed as dist
import mpi_ranks
import pytest
import test_groups
from ranks import error_of

pytestmark = pytest.mark.skipif(mpi_ranks.missing() is not None, reason=str(mpi_ranks.missing()))


def everything(rank, size):
    import test_collectives
    import test_messages

    failed, _, after = test_collectives.reductions(rank, size)
    moved = test_collectives.movements(rank, size)
    return failed, after, moved, test_messages.messages(rank, size), dist.get_backend(), dist.is_mpi_available()


def test_every_collective_dtype_and_message(tmp_path):
    for failed, after, moved, messages, backend, there in mpi_ranks.run(3, everything, tmp_path):
        assert failed == [] and moved == [] and after == [3, 3] and backend == "mpi" and there
        assert not any(each is False for each in messages)


def test_mpi_is_not_offered_to_processes_that_it_does_not_know(monkeypatch):
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert dist.is_mpi_available()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not dist.is_mpi_available()  # packages that ask take gloo then
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert dist.is_mpi_available()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert not dist.is_mpi_available()


def works_and_objects(rank, size):
    import test_collectives

    return test_collectives.asynchronous(rank, size), test_collectives.objects(rank, size)


def test_works_and_objects(tmp_path):
    first, second = mpi_ranks.run(2, works_and_objects, tmp_path)
    assert first[0] == second[0] == [[2.0 * i for i in range(8)], [2, 2, 2], 30, [4.0 * i for i in range(8)]]
    assert first[1][0] == second[1][0] == [0, 10_000] and second[1][4:] == [["sent", 5], 0]


def test_groups_of_some_ranks(tmp_path):
    for rank, found in enumerate(mpi_ranks.run(4, test_groups.groups, tmp_path)):
        first = rank % 2
        assert found[:4] == [[2.0 + 2 * first] * 3, -1, 2, [first, first + 2]] and found[10] == 2


def fails(rank, size):
    if rank == 1:
        raise KeyError("rank 1 fails")
    dist.barrier()


def test_a_rank_that_fails_ends_the_others(tmp_path):
    began = time.monotonic()
    code, output = mpi_ranks.start(2, fails, tmp_path)
    assert code != 0 and "rank 1 fails" in output and time.monotonic() - began < 30


def late(rank, size):
    if rank == 1:
        time.sleep(30)
    dist.all_reduce(mica.ones(3))


def test_a_limit_for_ranks_that_are_late(tmp_path):
    began = time.monotonic()
    code, output = mpi_ranks.start(2, late, tmp_path, environment={"MICA_DISTRIBUTED_LATE_LIMIT": "2"})
    assert code != 0 and time.monotonic() - began < 25
    assert "rank 0 ends the program in all_reduce number 1, float32 [3], SUM of the group '0', at " in output
    assert "Timed out after 2 s" in output and "Its program is at " in output and " in late (the process" in output


def differ(rank, size):
    dist.all_reduce(mica.ones(3))
    if rank == 0:
        dist.all_reduce(mica.ones(4, 2))
    else:
        dist.barrier()
        dist.barrier()


def test_ranks_that_call_different_operations(tmp_path):
    began = time.monotonic()
    code, output = mpi_ranks.start(2, differ, tmp_path)
    assert code != 0 and time.monotonic() - began < 30
    assert "in all_reduce number 2, float32 [4, 2], SUM" in output and "barrier number 2" in output


def leaves(rank, size):
    dist.barrier()
    if rank == 0:
        dist.all_reduce(mica.ones(3))


def test_a_rank_whose_program_is_over(tmp_path):
    code, output = mpi_ranks.start(2, leaves, tmp_path)
    assert code != 0 and "rank 1 (process" in output
    assert "has left the group, for which waits all_reduce number 2" in output


def wrong(rank, size):
    x = mica.zeros(3)
    too_large = error_of(dist.send, x, 1 - rank, tag=1 << 40) if rank == 0 else None
    work = dist.isend(mica.ones(5), 1) if rank == 0 else None
    shorter = error_of(dist.recv, x, 0) if rank == 1 else None
    if work is not None:
        work.wait()
    dist.all_reduce(y := mica.ones(1))
    return too_large, shorter, y.item()


def test_messages_that_do_not_fit(tmp_path):
    first, second = mpi_ranks.run(2, wrong, tmp_path)
    assert "the tag of a message is from 0 to" in first[0] and "DistBackendError: recv" in second[1]
    assert first[2] == second[2] == 2


def test_an_mpi_that_is_not_there(monkeypatch):
    from mica.distributed import mpi

    monkeypatch.setenv("MICA_MPI_LIBRARY", "/nowhere/libmpi.so")
    monkeypatch.setattr(mpi, "_mpi", None)
    assert "MPI cannot be opened: /nowhere/libmpi.so" in error_of(dist.init_process_group, "mpi")
    monkeypatch.setattr(mpi, "library", lambda: None)
    assert "needs an MPI library, and there is none: install it" in error_of(dist.init_process_group, "mpi")
    assert not dist.is_initialized()
