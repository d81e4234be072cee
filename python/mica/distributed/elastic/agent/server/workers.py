"""The processes of a machine as an agent sees them: what is to run, what each one is, how they stand."""

import os
import warnings
from dataclasses import dataclass, field
from enum import Enum


@dataclass
class WorkerSpec:
    """What is to run on this machine, how often it may be started again, and how the machines meet."""

    role: str
    local_world_size: int
    rdzv_handler: object
    fn: object = None
    entrypoint: object = None
    args: tuple = ()
    max_restarts: int = 3
    monitor_interval: float = 0.1
    master_port: int | None = None
    master_addr: str | None = None
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: object = None
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False

    def __post_init__(self):
        if self.local_world_size <= 0:
            raise AssertionError(f"local_world_size is {self.local_world_size}: it must be positive")
        if self.monitor_interval <= 0:
            raise AssertionError(f"monitor_interval is {self.monitor_interval}: it must be positive")
        if self.fn:
            warnings.warn(
                "WorkerSpec.fn will be deprecated, please use WorkerSpec.entrypoint instead",
                DeprecationWarning,
                stacklevel=2,
            )
            self.entrypoint = self.fn
        if not self.entrypoint:
            raise AssertionError("entrypoint is missing: nothing is to run")

    def get_entrypoint_name(self):
        return os.path.basename(self.entrypoint) if isinstance(self.entrypoint, str) else self.entrypoint.__qualname__


class Worker:
    """One process: where it stands among the others. Ranks may change each time the machines meet."""

    __slots__ = ["global_rank", "id", "local_rank", "role_rank", "role_world_size", "world_size"]

    def __init__(self, local_rank, global_rank=-1, role_rank=-1, world_size=-1, role_world_size=-1):
        self.id = None
        self.local_rank, self.global_rank, self.role_rank = local_rank, global_rank, role_rank
        self.world_size, self.role_world_size = world_size, role_world_size

    def __repr__(self):
        return (
            f"local_rank={self.local_rank},global_rank={self.global_rank},role_rank={self.role_rank},"
            f"world_size={self.world_size},role_world_size={self.role_world_size}"
        )


class WorkerState(str, Enum):  # noqa: UP042  (as torch\'s print)
    """The state of all processes of a machine together. If one fails, all of them have failed."""

    UNKNOWN = "UNKNOWN"
    INIT = "INIT"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @staticmethod
    def is_running(state):
        return state in {WorkerState.HEALTHY, WorkerState.UNHEALTHY}


class WorkerGroup:
    """The processes of one machine."""

    __slots__ = [
        "group_rank",
        "group_world_size",
        "master_addr",
        "master_port",
        "spec",
        "state",
        "store",
        "workers",
    ]

    def __init__(self, spec):
        self.spec = spec
        self.workers = [Worker(local_rank=each) for each in range(spec.local_world_size)]
        self.store = self.group_rank = self.group_world_size = self.master_addr = self.master_port = None
        self.state = WorkerState.INIT


@dataclass
class RunResult:
    """The results or failures of the processes, by their ranks in the whole run."""

    state: WorkerState
    return_values: dict = field(default_factory=dict)
    failures: dict = field(default_factory=dict)

    def is_failed(self):
        return self.state == WorkerState.FAILED
