"""Runs a function in several processes, one for each rank, and always ends them."""

import functools
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import mica

# Trainings of 50 steps with every option, on 2 and 4 processes: make test-distributed. Otherwise most are shorter.
LONG = bool(os.environ.get("MICA_LONG_TESTS"))
PACKAGE = Path(mica.__file__).parent.absolute()
# What a function finds in its process: the names that test files import.
_START = """
import datetime, json, os, signal, sys, threading, time
import mica
import mica.distributed as dist
from ranks import error_of
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
mica.set_num_threads(1)
"""
_END = """
if __name__ == "__main__":
    value = {name}(rank, size)
    with open(os.environ["MICA_TEST_RESULT"], "w") as file:
        json.dump(value, file)
"""


def error_of(call, *args, **options):
    """The error of a call as text."""
    try:
        call(*args, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Rank:
    """What became of one process."""

    def __init__(self, process, folder, rank):
        self.process, self.rank = process, rank
        self.output, self.result_file = folder / f"output{rank}", folder / f"result{rank}"

    @property
    def code(self):
        return self.process.returncode

    @property
    def text(self):
        return self.output.read_text()

    @property
    def result(self):
        return json.loads(self.result_file.read_text()) if self.result_file.exists() else None


class Ranks:
    """The processes of a world, as a context: none of them outlives it."""

    def __init__(self, size, function, init="dist.init_process_group('gloo')", environment=None, script_arguments=(),
        before=None,
    ):  # fmt: skip
        """`before` has for each rank the words before its command, which run it elsewhere."""
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        source = textwrap.dedent(inspect.getsource(function))
        (folder / "program.py").write_text(f"{_START}\n{init}\n{source}\n{_END.format(name=function.__name__)}")
        port = str(free_port())
        self.ranks = []
        for rank in range(size):
            variables = {
                **os.environ, "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port, "MICA_TEST_RESULT": str(folder / f"result{rank}"), "MICA_TEST_FOLDER": str(folder),
                "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), str(Path(__file__).parent)]),
                **(environment or {}),
            }  # fmt: skip
            with open(folder / f"output{rank}", "w") as output:
                process = subprocess.Popen(
                    [*(before[rank] if before else ()), sys.executable, str(folder / "program.py"), *script_arguments],
                    env=variables, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            self.ranks.append(Rank(process, folder, rank))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for each in self.ranks:
            if each.process.poll() is None:
                os.killpg(each.process.pid, signal.SIGKILL)
        for each in self.ranks:
            each.process.wait()
        self.folder.cleanup()

    def wait(self, limit=100):
        """Waits for all; a rank that is not done in time fails the test."""
        end = time.monotonic() + limit
        for each in self.ranks:
            try:
                each.process.wait(max(end - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                texts = "\n".join(f"--- rank {r.rank}:\n{r.text}" for r in self.ranks)
                raise AssertionError(f"rank {each.rank} did not end within {limit} s\n{texts}") from None
        return self.ranks

    def ends_well(self, limit=100):
        """Waits for all; every rank must end well."""
        self.wait(limit)
        for each in self.ranks:
            assert each.code == 0, f"rank {each.rank} ended with {each.code}:\n{each.text}"
        return self.ranks


def run(size, function, **options):
    """What `function(rank, size)` returns on each rank; every rank must end well. Children see its source only."""
    limit = options.pop("limit", 100)
    with Ranks(size, function, **options) as world:
        return [each.result for each in world.ends_well(limit)]


def _all_cases(rank, size):
    import importlib
    import traceback

    results = {}
    for case in importlib.import_module(os.environ["MICA_TEST_CASES"]).CASES:
        try:
            case(rank, size)
        except BaseException:
            results[case.__name__] = traceback.format_exc()
            with open(os.environ["MICA_TEST_RESULT"], "w") as file:
                json.dump(results, file)
            os._exit(1)  # the others see that this process is gone
        results[case.__name__] = "passed"
    return results


@functools.cache
def results_of_cases(module, size, limit=100, long=False):
    """What became of each of a module's CASES on each rank; the processes start once for all cases."""
    environment = {"MICA_TEST_CASES": module, **({"MICA_LONG_TESTS": "1"} if long else {})}
    with Ranks(size, _all_cases, environment=environment) as world:
        return [each.result or {} for each in world.wait(limit)]


def check_case(module, case, size, **options):
    """Fails if a case of a module has failed on any rank."""
    for rank, seen in enumerate(results_of_cases(module, size, **options)):
        assert seen.get(case) == "passed", f"rank {rank}: {seen.get(case, 'not reached')}"


def steps(few):
    """How many steps a training of a case has."""
    return 50 if LONG else few


def same_losses(seen, expected, what="", single=False):
    """Fails unless losses are those of one process: to 1e-12 of their size, or to 1e-6 in single precision."""
    bound = 1e-6 if single else 1e-12
    worst = max(abs(a - b) / max(abs(b), 0.1) for a, b in zip(seen, expected, strict=True))
    assert worst <= bound, (worst, what, seen[-3:], expected[-3:])
    assert len(seen) < 2 or seen[-1] < seen[0], seen
