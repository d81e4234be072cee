"""Where the machine's MPI library is."""

import os
import shutil
import sys
import sysconfig

# Chosen by the launcher of this process: Open MPI's mpirun, or one that speaks PMI, such as MPICH's and Slurm's srun.
_OPEN_MPI, _OTHERS = ["libmpi.so.40"], ["libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1", "libmpi_abi.so.0"]

# The variables that launchers of MPI set for their processes.
_STARTED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_RANK")


def started_by_mpi():
    """Whether mpirun or Slurm has started this process. A torchrun between them has processes of its own."""
    return "TORCHELASTIC_RUN_ID" not in os.environ and any(name in os.environ for name in _STARTED)


def _loaded():
    """The path of an MPI library that this process has already loaded, such as mpi4py's."""
    with open("/proc/self/maps") as file:
        for line in file:
            path = line.rstrip("\n").partition("/")[2]
            if os.path.basename(path).startswith(("libmpi.so", "libmpich.so", "libmpi_abi.so")):
                return "/" + path
    return None


def _folders():
    """Where libraries are: of this Python, of the mpirun on the path, and of the machine."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    yield os.path.join(sys.prefix, "lib")
    launcher = shutil.which("mpirun")
    roots = [os.path.dirname(os.path.dirname(os.path.realpath(launcher)))] if launcher else []
    for root in [*roots, "/usr", "/usr/local"]:
        yield from (os.path.join(root, "lib"), os.path.join(root, "lib64"), os.path.join(root, "lib", multiarch))
    yield from os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    yield from ("/usr/lib64/openmpi/lib", "/usr/lib64/mpich/lib")


def library():
    """The path of the MPI library, None if there is none."""
    if named := os.environ.get("MICA_MPI_LIBRARY"):
        return named
    if found := _loaded():
        return found
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        names = _OPEN_MPI
    elif "PMI_SIZE" in os.environ:
        names = _OTHERS
    else:
        names = _OPEN_MPI + _OTHERS
    for folder in _folders():
        for name in names:
            if folder and os.path.exists(os.path.join(folder, name)):
                return os.path.join(folder, name)
    return None
