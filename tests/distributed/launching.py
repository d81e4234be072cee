"""Runs `mica launch` on a small program and looks after the processes: none is left when a test ends."""

import os
import subprocess
import sys
import time
from pathlib import Path

import mica

PACKAGE = str(Path(mica.__file__).parent.parent.absolute())
# What each process of a test does first: it leaves its id beside the script.
PREAMBLE = """
import os, sys, json, signal, time
open(os.path.join(os.path.dirname(os.path.abspath(__file__)), f"pid_{os.getpid()}"), "w").close()
say = lambda *words: os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # in one piece: ranks write at once
rank, attempt = int(os.environ.get("RANK", 0)), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
"""


def environment(**more):
    """The environment of a shell that knows mica, and nothing of a launcher above this test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC", "PET_", "RANK"))}
    return {**kept, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1", **more}


class Program:
    """A script in a folder of its own."""

    def __init__(self, folder, source):
        self.folder, self.path = folder, folder / "program.py"
        self.path.write_text(PREAMBLE + source)

    def start(self, *options, arguments=(), command=("mica", "launch"), before=(), **variables):
        """`before` has the words before the command, which run it elsewhere."""
        return subprocess.Popen(
            [*before, sys.executable, "-m", *command, *options, str(self.path), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, env=environment(**variables),
        )  # fmt: skip

    def run(self, *options, arguments=(), command=("mica", "launch"), seconds=60, **variables):
        process = self.start(*options, arguments=arguments, command=command, **variables)
        try:
            process.stdout_text, process.stderr_text = process.communicate(timeout=seconds)
        except BaseException:
            process.kill()
            raise
        assert self.left_behind() == []
        return process

    def pids(self):
        return [int(each.name.removeprefix("pid_")) for each in self.folder.glob("pid_*")]

    def wait_for(self, count, seconds=20):
        """Wait until so many processes have begun."""
        end = time.monotonic() + seconds
        while len(self.pids()) < count:
            assert time.monotonic() < end, f"{len(self.pids())} of {count} processes have begun"
            time.sleep(0.02)
        return self.pids()

    def left_behind(self, seconds=5):
        """Processes of the program that still run after a while."""
        end = time.monotonic() + seconds
        while alive := [pid for pid in self.pids() if _runs(pid)]:
            if time.monotonic() > end:
                return alive
            time.sleep(0.02)
        return []


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
