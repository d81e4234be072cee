"""What mpirun and Slurm tell the processes that they start, in the words of env://: RANK, WORLD_SIZE and so on."""

import os
import re
import zlib

# For each launcher: rank, size, rank on the machine, size on the machine. The first one whose rank is set has started
# this process.
_SOURCES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", None),
)
_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
# Variables that all processes of one start have in common, and no others.
_JOBS = ("SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "HYDRA_JOBID", "PMIX_SERVER_URI2")


def first_host(nodes):
    """The first name of a list as Slurm writes it: "gpu[003-007,9],cpu1" is gpu003 first."""
    found = re.match(r"([^,\[\s]+)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes.strip())
    if not found:
        raise ValueError(f"{nodes!r} is no list of machines as Slurm writes it")
    return "".join(part or "" for part in found.groups())


def _tasks_on_this_node(environment):
    """How many tasks Slurm has started on this machine, of "2(x3),1": the list is by machine."""
    counts = []
    for part in environment.get("SLURM_STEP_TASKS_PER_NODE", environment.get("SLURM_TASKS_PER_NODE", "")).split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if found:
            counts += [int(found[1])] * int(found[2] or 1)
    node = int(environment.get("SLURM_NODEID", 0))
    return counts[node] if node < len(counts) else None


def _address(environment, told):
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST")
    if nodes:
        return first_host(nodes)
    if told.get("LOCAL_WORLD_SIZE") == told["WORLD_SIZE"]:
        return "127.0.0.1"
    return None  # mpirun does not say where its first process is


def _port(environment):
    """A port that all processes of a start choose, and those of another start probably do not."""
    job = next((environment[name] for name in _JOBS if name in environment), "")
    return 20000 + zlib.crc32(job.encode()) % 20000


def told_by_scheduler(environment=None):
    """The variables of env:// that are not set and that the scheduler's say. Nothing if none has started this process."""
    environment = os.environ if environment is None else environment
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return {}
    for rank, *others in _SOURCES:
        if rank not in environment:
            continue
        # The shell of a batch job has Slurm's variables too, but it is not a task.
        if rank == "SLURM_PROCID" and environment.get("SLURM_STEP_ID", "batch") in ("batch", "4294967291"):
            continue
        told = {
            name: environment[source]
            for name, source in zip(_NAMES, (rank, *others), strict=True)
            if source in environment
        }
        if "WORLD_SIZE" not in told:
            continue
        if rank == "SLURM_PROCID" and (count := _tasks_on_this_node(environment)):
            told["LOCAL_WORLD_SIZE"] = str(count)
        if "MASTER_ADDR" not in environment and (address := _address(environment, told)):
            told["MASTER_ADDR"] = address
        if "MASTER_PORT" not in environment:
            told["MASTER_PORT"] = str(_port(environment))
        return {name: value for name, value in told.items() if name not in environment}
    return {}
