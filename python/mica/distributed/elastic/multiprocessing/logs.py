"""Where the output of processes goes: the console, files, or both."""

import os
import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import IntFlag

from mica.distributed.elastic.utils.logging import get_logger

logger = get_logger(__name__)

_ONE = r"^[0123]$"
_BY_RANK = r"^(\d+:[0123],)*(\d+:[0123])$"


class Std(IntFlag):
    """The streams of a process: none, its output, its errors, or both."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm):
        """What an option says: "3" is both streams of all processes, "0:3,1:1" says it by local rank."""
        if re.match(_ONE, vm):
            return cls(int(vm))
        if not re.match(_BY_RANK, vm):
            raise ValueError(f"{vm} does not match: <{_ONE}> or <{_BY_RANK}>")
        pairs = (each.split(":") for each in vm.split(","))
        return {int(rank): cls(int(streams)) for rank, streams in pairs}


def to_map(val_or_map, local_world_size):
    """Streams by local rank: of one value for all, or of a mapping that may leave ranks out."""
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}


@dataclass
class LogsDest:
    """Files by local rank. An empty name is the console."""

    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)
    tee_stdouts: dict[int, str] = field(default_factory=dict)
    tee_stderrs: dict[int, str] = field(default_factory=dict)
    error_files: dict[int, str] = field(default_factory=dict)
    filtered_stdout: str = field(default_factory=str)
    filtered_stderr: str = field(default_factory=str)


class LogsSpecs(ABC):
    """Says where the output of processes goes."""

    def __init__(self, log_dir=None, redirects=Std.NONE, tee=Std.NONE, local_ranks_filter=None):
        self._root_log_dir, self._redirects, self._tee = log_dir, redirects, tee
        self._local_ranks_filter = local_ranks_filter

    @abstractmethod
    def reify(self, envs):
        """The files of processes with these environments, made ready."""

    @property
    @abstractmethod
    def root_log_dir(self):
        """The folder of all runs."""


class DefaultLogsSpecs(LogsSpecs):
    """Files <log_dir>/<run id>_<...>/attempt_<n>/<local rank>/{stdout.log, stderr.log, error.json}."""

    def __init__(self, log_dir=None, redirects=Std.NONE, tee=Std.NONE, local_ranks_filter=None):
        self._is_temporary = not log_dir
        if log_dir != os.devnull:
            if not log_dir:
                log_dir = tempfile.mkdtemp(prefix="torchelastic_")
            elif os.path.isfile(log_dir):
                raise NotADirectoryError(f"log_dir: {log_dir} is a file")
            else:
                os.makedirs(log_dir, exist_ok=True)
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._run_log_dir = None

    @property
    def root_log_dir(self):
        return str(self._root_log_dir)

    def _make_log_dir(self, log_dir, rdzv_run_id):
        base = log_dir or tempfile.mkdtemp(prefix="torchelastic_")
        os.makedirs(base, exist_ok=True)
        made = tempfile.mkdtemp(prefix=f"{rdzv_run_id}_", dir=base)
        logger.info("log directory set to: %s", made)
        return made

    def discard_if_unasked(self):
        """Delete a temporary folder after a run that went well and wrote no output there."""
        if self._is_temporary and not self._redirects and not self._tee:
            shutil.rmtree(self._root_log_dir, ignore_errors=True)

    def _attempt_folder(self, environment):
        if self._run_log_dir is None:
            run = environment.get("TORCHELASTIC_RUN_ID", "test_run_id")
            self._run_log_dir = self._make_log_dir(self._root_log_dir, run)
        attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        folder = os.path.join(self._run_log_dir, f"attempt_{attempt}")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        return folder

    def reify(self, envs):
        count = len(envs)
        if self._root_log_dir == os.devnull:
            return self._discarded(envs)
        folder = self._attempt_folder(envs[0] if envs else {})
        made = LogsDest(
            filtered_stdout=os.path.join(folder, "filtered_stdout.log"),
            filtered_stderr=os.path.join(folder, "filtered_stderr.log"),
        )
        redirected, shown = to_map(self._redirects, count), to_map(self._tee, count)
        for rank in range(count):
            own = os.path.join(folder, str(rank))
            os.mkdir(own)
            made.error_files[rank] = envs[rank]["TORCHELASTIC_ERROR_FILE"] = os.path.join(own, "error.json")
            hidden = bool(self._local_ranks_filter) and rank not in self._local_ranks_filter
            for stream, name, files, tees in (
                (Std.OUT, "stdout.log", made.stdouts, made.tee_stdouts),
                (Std.ERR, "stderr.log", made.stderrs, made.tee_stderrs),
            ):
                if (redirected[rank] | shown[rank]) & stream:
                    files[rank] = os.path.join(own, name)
                    # Output that is shown as well is written to the file and read from there.
                    if shown[rank] & stream and not hidden:
                        tees[rank] = files[rank]
                else:
                    files[rank] = os.devnull if hidden else ""
        return made

    def _discarded(self, envs):
        """Without a folder there are no files: streams go to the console."""
        made = LogsDest(filtered_stdout=os.devnull, filtered_stderr=os.devnull)
        for rank, environment in envs.items():
            made.stdouts[rank] = made.stderrs[rank] = ""
            made.error_files[rank] = os.devnull
            environment["TORCHELASTIC_ERROR_FILE"] = ""
        return made

    def __repr__(self):
        return (
            f"DefaultLogsSpecs(root_log_dir={self._root_log_dir}, redirects={self._redirects}, tee={self._tee}, "
            f"local_ranks_filter={self._local_ranks_filter})"
        )

    def __eq__(self, other):
        return isinstance(other, DefaultLogsSpecs) and (
            self._root_log_dir, self._redirects, self._tee, self._local_ranks_filter
        ) == (other._root_log_dir, other._redirects, other._tee, other._local_ranks_filter)  # fmt: skip

    __hash__ = None
