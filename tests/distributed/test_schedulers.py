"""Ranks from the variables of mpirun and Slurm."""

import mica.distributed as dist
import pytest
from mica.distributed.schedulers import first_host, told_by_scheduler

OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "1234",
}  # fmt: skip
SLURM = {
    "SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_LOCALID": "1", "SLURM_NODEID": "2", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77",
    "SLURM_TASKS_PER_NODE": "2(x3)", "SLURM_STEP_NODELIST": "gpu[003-005]",
}  # fmt: skip


def test_hosts_as_slurm_writes_them():
    names = {"a": "a", "a,b": "a", "gpu[003-007,9],cpu1": "gpu003", "n[1,5]x,m": "n1x", "h-1.net[10]": "h-1.net10"}
    assert {nodes: first_host(nodes) for nodes in names} == names
    with pytest.raises(ValueError, match="no list of machines"):
        first_host("")


def test_openmpi_says_the_rank():
    told = told_by_scheduler(OPENMPI)
    assert 20000 <= int(told.pop("MASTER_PORT")) < 40000
    expected = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"}
    assert told == expected
    # On several machines nobody says where the first process is.
    assert "MASTER_ADDR" not in told_by_scheduler({**OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"})
    ports = {told_by_scheduler({**OPENMPI, "PMIX_NAMESPACE": str(job)})["MASTER_PORT"] for job in range(50)}
    assert len(ports) > 45


def test_mpich_says_the_rank():
    told = told_by_scheduler({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"})
    assert (told["RANK"], told["WORLD_SIZE"], told["MASTER_ADDR"]) == ("0", "2", "127.0.0.1")


def test_slurm_says_the_rank_and_where_the_first_machine_is():
    told = told_by_scheduler(SLURM)
    told.pop("MASTER_PORT")
    assert told == {"RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "gpu003"}
    # The shell of a batch job is not a task, nor is a process that torchrun has started below one.
    assert told_by_scheduler({name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"}) == {}
    assert told_by_scheduler({**SLURM, "RANK": "0", "WORLD_SIZE": "1"}) == {}
    assert "MASTER_ADDR" not in told_by_scheduler({**SLURM, "MASTER_ADDR": "head"})


def test_a_process_that_nobody_has_started_is_told_nothing():
    assert told_by_scheduler({}) == {} and told_by_scheduler({"PMI_RANK": "0"}) == {}


def of_the_scheduler(rank, size):
    return dist.get_rank(), dist.get_world_size()


def test_a_world_is_found_by_what_mpirun_says():
    import ranks

    # Each process forgets torch's variables and has OpenMPI's instead.
    start = (
        "for each in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR'): del os.environ[each]\n"
        "os.environ |= {'OMPI_COMM_WORLD_RANK': str(rank), 'OMPI_COMM_WORLD_SIZE': str(size),"
        " 'OMPI_COMM_WORLD_LOCAL_RANK': str(rank), 'OMPI_COMM_WORLD_LOCAL_SIZE': str(size)}\n"
        "dist.init_process_group('gloo')"
    )
    assert ranks.run(2, of_the_scheduler, init=start) == [[0, 2], [1, 2]]
