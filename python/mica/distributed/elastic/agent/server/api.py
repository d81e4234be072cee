"""What an agent does: meet the others, start processes, watch them, start them again when one fails."""

import abc
import json
import os
import signal
import socket
import time
import traceback
from collections import defaultdict
from contextlib import contextmanager

from mica.distributed.elastic.agent.server.workers import (
    RunResult,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from mica.distributed.elastic.events import Event, EventSource, record
from mica.distributed.elastic.metrics import prof, put_metric
from mica.distributed.elastic.multiprocessing import SignalException
from mica.distributed.elastic.rendezvous import RendezvousGracefulExitError
from mica.distributed.elastic.utils import store as store_util
from mica.distributed.elastic.utils.logging import get_logger

__all__ = [
    "ElasticAgent",
    "RunResult",
    "SimpleElasticAgent",
    "Worker",
    "WorkerGroup",
    "WorkerSpec",
    "WorkerState",
]

DEFAULT_ROLE = "default"
_TERMINAL_STATE_SYNC_ID = "torchelastic/agent/terminal_state"
logger = get_logger(__name__)


class ElasticAgent(abc.ABC):
    """Runs the processes of one machine."""

    @abc.abstractmethod
    def run(self, role=DEFAULT_ROLE):
        """Run them to their end. Returns RunResult."""
        raise NotImplementedError

    @abc.abstractmethod
    def get_worker_group(self, role=DEFAULT_ROLE):
        raise NotImplementedError


class SimpleElasticAgent(ElasticAgent):
    """An agent of one kind of process. Subclasses say how processes are started, watched and ended."""

    def __init__(self, spec, exit_barrier_timeout=300, shutdown_timeout=30):
        self._worker_group = WorkerGroup(spec)
        self._remaining_restarts = spec.max_restarts
        self._store, self._total_execution_time = None, 0
        self._exit_barrier_timeout, self._shutdown_timeout = exit_barrier_timeout, shutdown_timeout

    def get_worker_group(self, role=DEFAULT_ROLE):
        return self._worker_group

    @abc.abstractmethod
    def _start_workers(self, worker_group):
        """Start the processes. Returns what identifies them, by local rank."""
        raise NotImplementedError

    @abc.abstractmethod
    def _stop_workers(self, worker_group):
        raise NotImplementedError

    @abc.abstractmethod
    def _monitor_workers(self, worker_group):
        """How the processes stand. Returns RunResult."""
        raise NotImplementedError

    @abc.abstractmethod
    def _shutdown(self, death_sig=signal.SIGTERM, timeout=30):
        raise NotImplementedError

    def _wait_for_change(self, seconds):
        """Wait before looking at the processes again."""
        time.sleep(seconds)

    # -- meeting and starting

    @prof
    def _rendezvous(self, worker_group):
        """Meet the other machines: processes get new ranks."""
        spec = worker_group.spec
        with self.record_duration("RENDEZVOUS"):
            info = spec.rdzv_handler.next_rendezvous()
        self._store = worker_group.store = info.store
        worker_group.group_rank, worker_group.group_world_size = info.rank, info.world_size
        worker_group.master_addr = spec.master_addr or info.bootstrap_store_info.master_addr
        worker_group.master_port = spec.master_port or info.bootstrap_store_info.master_port
        with self.record_duration("ASSIGN_WORKER_RANKS"):
            worker_group.workers = self._assign_worker_ranks(info.store, info.rank, info.world_size, spec)
        logger.info("[%s] machine %d of %d has %s", spec.role, info.rank, info.world_size, worker_group.workers)

    @prof
    def _assign_worker_ranks(self, store, group_rank, group_world_size, spec):
        """Number the processes of all machines through: machine 0 does it, as machines may have different numbers of them."""
        if os.environ.get("TORCH_ELASTIC_WORKER_IDENTICAL", "0") == "1":
            first = role_first = group_rank * spec.local_world_size
            total = role_total = group_world_size * spec.local_world_size
        else:
            said = {"role": spec.role, "rank": group_rank, "local_world_size": spec.local_world_size}
            store.set(f"torchelastic/role_info/{group_rank}", json.dumps(said))
            if group_rank == 0:
                self._number_workers(store, group_world_size)
            first, total, role_first, role_total = json.loads(store.get(f"torchelastic/assigned_ranks/{group_rank}"))
        return [
            Worker(rank, first + rank, role_first + rank, total, role_total) for rank in range(spec.local_world_size)
        ]

    def _number_workers(self, store, machines):
        infos = [json.loads(each) for each in store.multi_get([f"torchelastic/role_info/{i}" for i in range(machines)])]
        of_role = defaultdict(int)
        for info in infos:
            of_role[info["role"]] += info["local_world_size"]
        total, first, role_first = sum(of_role.values()), 0, defaultdict(int)
        for machine, info in enumerate(infos):
            role, count = info["role"], info["local_world_size"]
            store.set(
                f"torchelastic/assigned_ranks/{machine}", json.dumps([first, total, role_first[role], of_role[role]])
            )
            first, role_first[role] = first + count, role_first[role] + count

    @prof
    def _initialize_workers(self, worker_group):
        self._rendezvous(worker_group)
        for rank, identity in self._start_workers(worker_group).items():
            worker = worker_group.workers[rank]
            worker.id = identity
            self._report(self._construct_event("START", EventSource.WORKER, worker))
        worker_group.state = WorkerState.HEALTHY

    @prof
    def _restart_workers(self, worker_group):
        self._stop_workers(worker_group)
        worker_group.state = WorkerState.STOPPED
        self._initialize_workers(worker_group)

    # -- running

    @prof
    def run(self, role=DEFAULT_ROLE):
        start, ended = time.monotonic(), False
        try:
            result = self._invoke_run(role)
            self._total_execution_time = int(time.monotonic() - start)
            self._record_metrics(result)
            self._record_worker_events(result)
            return result
        except RendezvousGracefulExitError as leave:
            logger.info("Rendezvous gracefully exited: %s", leave)
            return RunResult(state=WorkerState.SUCCEEDED)
        except SignalException as told:
            logger.warning("Received %s death signal, shutting down workers", told.sigval)
            self._shutdown(told.sigval, timeout=self._shutdown_timeout)
            ended = True
            raise
        finally:
            if not ended:
                self._shutdown(timeout=self._shutdown_timeout)
            self._total_execution_time = int(time.monotonic() - start)

    def _invoke_run(self, role=DEFAULT_ROLE):
        group, spec = self._worker_group, self._worker_group.spec
        self._initialize_workers(group)
        while True:
            self._wait_for_change(spec.monitor_interval)
            result = self._monitor_workers(group)
            group.state = result.state
            put_metric(f"workers.{spec.role}.remaining_restarts", self._remaining_restarts)
            put_metric(f"workers.{spec.role}.{result.state.name.lower()}", 1)
            if result.state == WorkerState.SUCCEEDED:
                self._exit_barrier()
                return result
            if result.state in (WorkerState.UNHEALTHY, WorkerState.FAILED):
                if self._remaining_restarts <= 0:
                    self._stop_workers(group)
                    group.state = WorkerState.FAILED
                    return result
                self._say_restart(result)
                self._remaining_restarts -= 1
                self._restart_workers(group)
            elif result.state == WorkerState.HEALTHY:
                # Machines that come or go do not count as restarts.
                if (waiting := spec.rdzv_handler.num_nodes_waiting()) > 0:
                    logger.warning(
                        "[%s] %s machines have joined or left: all processes start again", spec.role, waiting
                    )
                    self._restart_workers(group)
            else:
                raise Exception(f"[{spec.role}] Worker group in {result.state.name} state")

    def _say_restart(self, result):
        failures, spec = result.failures, self._worker_group.spec
        how = ""
        if failures:
            rank = min(failures, key=lambda each: failures[each]._time)
            failure = failures[rank]
            message = failure.message if isinstance(failure.message, str) else failure.message.get("message")
            how = f": rank {rank} (pid {failure.pid}) ended with {failure.exitcode}: {message}"
        logger.warning(
            "[%s] Worker group %s%s. %s/%s attempts left; will restart worker group",
            spec.role, result.state.name, how, self._remaining_restarts, spec.max_restarts,
        )  # fmt: skip

    def _exit_barrier(self):
        """Wait for the processes of other machines: this one may hold the store that they need."""
        group = self._worker_group
        if group.group_world_size == 1:
            return
        try:
            store_util.barrier(self._store, group.group_world_size, _TERMINAL_STATE_SYNC_ID, self._exit_barrier_timeout)
        except SignalException:
            raise
        except Exception:
            logger.exception("The other machines have not ended within %s seconds", self._exit_barrier_timeout)

    # -- reporting

    def _report(self, event):
        record(event, self._worker_group.spec.event_log_handler)

    @contextmanager
    def record_duration(self, state):
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = (time.perf_counter() - start) * 1000
            self._report(self._construct_event(state, EventSource.AGENT, duration_ms=spent))

    def get_event_failed(self):
        return self._construct_event("FAILED", EventSource.AGENT, raw_error=traceback.format_exc())

    def get_event_succeeded(self):
        return self._construct_event("SUCCEEDED", EventSource.AGENT)

    def _construct_event(
        self, state, source, worker=None, raw_error=None, duration_ms=None, exit_code=None, worker_pid=None
    ):
        group, spec = self._worker_group, self._worker_group.spec
        more = {"group_world_size": group.group_world_size, "entry_point": spec.get_entrypoint_name()}
        if worker is not None:
            more |= {
                "local_rank": [worker.local_rank],
                "role_rank": [worker.role_rank],
                "role_world_size": [worker.role_world_size],
                "exit_code": [exit_code],
                "worker_pid": [worker_pid],
            }
        metadata = {
            "run_id": spec.rdzv_handler.get_run_id(),
            "global_rank": None if worker is None else worker.global_rank,
            "group_rank": group.group_rank,
            "worker_id": None if worker is None else str(worker.id),
            "role": spec.role,
            "hostname": socket.getfqdn(socket.gethostname()),
            "state": state,
            "total_run_time": self._total_execution_time,
            "rdzv_backend": spec.rdzv_handler.get_backend(),
            "raw_error": raw_error,
            "metadata": json.dumps(more),
            "agent_restarts": spec.max_restarts - self._remaining_restarts,
            "duration_ms": duration_ms,
        }
        return Event(f"torchelastic.worker.status.{state}", source=source, metadata=metadata)

    def _record_worker_events(self, result):
        for worker in self._worker_group.workers:
            failure = result.failures.get(worker.global_rank)
            if failure is None and result.state in (WorkerState.UNHEALTHY, WorkerState.FAILED):
                state = "TERMINATED"
            else:
                state = result.state.value
            self._report(
                self._construct_event(
                    state,
                    EventSource.WORKER,
                    worker,
                    raw_error=json.dumps(failure.error_file_data) if failure else None,
                    exit_code=failure.exitcode if failure else None,
                    worker_pid=failure.pid if failure else None,
                )
            )

    def _record_metrics(self, result):
        spec, failed = self._worker_group.spec, result.is_failed()
        retried = self._remaining_restarts != spec.max_restarts
        flakiness = 100.0 if failed else 100.0 - 100.0 * (self._remaining_restarts + 1) / (spec.max_restarts + 1)
        numbers = {
            "flakiness": int(flakiness),
            "run_total": 1,
            "run_success_with_retries": int(not failed and retried),
            "run_success_no_retries": int(not failed and not retried),
            "run_failed_with_retries": int(failed and retried),
            "run_failed_no_retries": int(failed and not retried),
        }
        for name, value in numbers.items():
            put_metric(f"workers.{spec.role}.{name}", value)
