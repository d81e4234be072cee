"""An agent whose processes run on the machine that it runs on."""

import os
import signal
from string import Template

from mica.distributed.elastic.agent.server.api import RunResult, SimpleElasticAgent, WorkerState
from mica.distributed.elastic.metrics import prof
from mica.distributed.elastic.multiprocessing import start_processes
from mica.distributed.elastic.utils import macros

__all__ = ["TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_TIMER_FILE", "LocalElasticAgent"]

TORCHELASTIC_ENABLE_FILE_TIMER = "TORCHELASTIC_ENABLE_FILE_TIMER"
TORCHELASTIC_TIMER_FILE = "TORCHELASTIC_TIMER_FILE"


class LocalElasticAgent(SimpleElasticAgent):
    """Starts processes of a command or of a function, with the variables that tell each what it is."""

    def __init__(
        self,
        spec,
        logs_specs,
        start_method="spawn",
        exit_barrier_timeout=300,
        log_line_prefix_template=None,
        shutdown_timeout=30,
        health_check_server=None,
        uninterruptible_state_timeout=None,
    ):
        super().__init__(spec, exit_barrier_timeout, shutdown_timeout)
        if os.getenv(TORCHELASTIC_ENABLE_FILE_TIMER) == "1":
            raise NotImplementedError("TORCHELASTIC_ENABLE_FILE_TIMER: timers in a file are not in Mica yet")
        self._start_method, self._logs_specs = start_method, logs_specs
        self._log_line_prefix_template = log_line_prefix_template
        self._pcontext = None

    @prof
    def _stop_workers(self, worker_group):
        self._shutdown(timeout=self._shutdown_timeout)

    def _environment(self, group, worker):
        spec = group.spec
        variables = {
            "RANK": str(worker.global_rank),
            "GROUP_RANK": str(group.group_rank),
            "ROLE_RANK": str(worker.role_rank),
            "ROLE_NAME": spec.role,
            "LOCAL_WORLD_SIZE": str(spec.local_world_size),
            "WORLD_SIZE": str(worker.world_size),
            "GROUP_WORLD_SIZE": str(group.group_world_size),
            "ROLE_WORLD_SIZE": str(worker.role_world_size),
            "MASTER_ADDR": group.master_addr,
            "MASTER_PORT": str(group.master_port),
            "TORCHELASTIC_RESTART_COUNT": str(spec.max_restarts - self._remaining_restarts),
            "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
            "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
            "TORCHELASTIC_USE_AGENT_STORE": str(spec.rdzv_handler.use_agent_store),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            "LOCAL_RANK": str(worker.local_rank),
        }
        prefix = getattr(spec.rdzv_handler, "store_prefix", "")  # a handler of another package may have none
        if spec.rdzv_handler.use_agent_store and isinstance(prefix, str) and prefix:
            variables["MICA_STORE_PREFIX"] = prefix
        if spec.virtual_local_rank:
            variables |= {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": self._own_device(worker.local_rank)}
        return variables

    def _own_device(self, local_rank):
        """The GPU of a process that is to see one only."""
        given = os.getenv("CUDA_VISIBLE_DEVICES")
        if given is None:
            return str(local_rank)
        devices = given.split(",")
        if local_rank >= len(devices):
            raise ValueError(f"local_rank {local_rank} exceeds available GPUs in CUDA_VISIBLE_DEVICES={given}")
        return devices[local_rank].strip()

    @prof
    def _start_workers(self, worker_group):
        spec, template = worker_group.spec, self._log_line_prefix_template
        arguments, environments, prefixes = {}, {}, {} if template else None
        for worker in worker_group.workers:
            rank = worker.local_rank
            environments[rank] = self._environment(worker_group, worker)
            arguments[rank] = tuple(macros.substitute(spec.args, str(rank)))
            if template:
                prefixes[rank] = Template(template).safe_substitute(
                    role_name=spec.role, rank=worker.global_rank, local_rank=rank
                )
        self._pcontext = start_processes(
            name=spec.role,
            entrypoint=spec.entrypoint,
            args=arguments,
            envs=environments,
            logs_specs=self._logs_specs,
            log_line_prefixes=prefixes,
            start_method=self._start_method,
            numa_options=spec.numa_options,
            duplicate_stdout_filters=spec.duplicate_stdout_filters,
            duplicate_stderr_filters=spec.duplicate_stderr_filters,
        )
        return self._pcontext.pids()

    def _shutdown(self, death_sig=signal.SIGTERM, timeout=30):
        if self._pcontext is not None:
            context, self._pcontext = self._pcontext, None
            context.close(death_sig, timeout)

    def _wait_for_change(self, seconds):
        self._pcontext.wait_for_change(seconds)

    @prof
    def _monitor_workers(self, worker_group):
        result = self._pcontext.wait(0)
        if result is None:
            return RunResult(WorkerState.HEALTHY)
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        if result.is_failed():
            return RunResult(WorkerState.FAILED, failures={ranks[rank]: each for rank, each in result.failures.items()})
        return RunResult(
            WorkerState.SUCCEEDED, return_values={ranks[rank]: each for rank, each in result.return_values.items()}
        )
