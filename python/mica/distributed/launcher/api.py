"""Launching a function or a command in many processes, from Python."""

import os
import sys
import uuid
from dataclasses import dataclass, field

from mica._cli.programs import pass_torch_on
from mica.distributed.elastic import events, metrics
from mica.distributed.elastic.agent.server import LocalElasticAgent, WorkerSpec
from mica.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from mica.distributed.elastic.multiprocessing.errors import ChildFailedError
from mica.distributed.elastic.multiprocessing.process_context import restore_signals
from mica.distributed.elastic.rendezvous import RendezvousParameters
from mica.distributed.elastic.rendezvous import registry as rdzv_registry
from mica.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from mica.distributed.elastic.utils.logging import get_logger

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]

logger = get_logger(__name__)


@dataclass
class LaunchConfig:
    """How many processes, on how many machines, how they meet, how often they may be started again."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: object = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict = field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: object = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: int | None = None

    def __post_init__(self):
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout
        self.rdzv_configs.setdefault("timeout", 900)
        if self.logs_specs is None:
            self.logs_specs = DefaultLogsSpecs()
        if self.shutdown_timeout is None:
            self.shutdown_timeout = int(os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30"))
        elif self.shutdown_timeout < 0:
            raise ValueError(f"shutdown_timeout must be non-negative, got {self.shutdown_timeout}")


class elastic_launch:
    """Launches a function or a command: elastic_launch(config, function)(arguments) gives the results by rank."""

    def __init__(self, config, entrypoint, health_check_server=None):
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args):
        return launch_agent(self._config, self._entrypoint, list(args))


def _get_entrypoint_name(entrypoint, args):
    """The name of what runs: the function, or the script that an interpreter gets."""
    if callable(entrypoint):
        return entrypoint.__name__
    if entrypoint == sys.executable:
        return next((each for each in args if each[:1] != "-"), "")
    return entrypoint or ""


def _get_addr_and_port(rdzv_parameters):
    if rdzv_parameters.backend != "static":
        return None, None
    endpoint = rdzv_parameters.endpoint.strip()
    if not endpoint:
        raise ValueError("Endpoint is missing in endpoint. Try to add --master-addr and --master-port")
    address, port = parse_rendezvous_endpoint(endpoint, default_port=-1)
    if port == -1:
        raise ValueError(f"port is missing in endpoint: {endpoint}. Try to specify --master-port")
    return address, port


def launch_agent(config, entrypoint, args, health_check_server=None):
    """Run an agent on this machine to the end of its processes. Returns their results by rank."""
    config.run_id = config.run_id or str(uuid.uuid4().int)
    name = _get_entrypoint_name(entrypoint, args)
    parameters = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )
    address, port = _get_addr_and_port(parameters)
    pass_torch_on()
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = config.signals_to_handle
    spec = WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        entrypoint=entrypoint,
        args=tuple(args),
        rdzv_handler=rdzv_registry.get_rendezvous_handler(parameters),
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        master_addr=address,
        master_port=port,
        local_addr=config.local_addr,
        event_log_handler=config.event_log_handler,
        numa_options=config.numa_options,
        duplicate_stdout_filters=config.duplicate_stdout_filters,
        duplicate_stderr_filters=config.duplicate_stderr_filters,
        virtual_local_rank=config.virtual_local_rank,
    )
    agent = LocalElasticAgent(
        spec,
        config.logs_specs,
        config.start_method,
        log_line_prefix_template=config.log_line_prefix_template,
        shutdown_timeout=config.shutdown_timeout,
    )
    return _run(agent, config, name)


def _run(agent, config, name):
    handler, closes = agent.get_worker_group().spec.rdzv_handler, True
    try:
        metrics.initialize_metrics(metrics.MetricsConfig(config.metrics_cfg))
        result = agent.run()
        events.record(agent.get_event_succeeded(), config.event_log_handler)
        if result.is_failed():
            raise ChildFailedError(name, result.failures)
        if isinstance(config.logs_specs, DefaultLogsSpecs):
            config.logs_specs.discard_if_unasked()
        return result.return_values
    except ChildFailedError as error:
        # Tells the other machines why the run is over, not only that it is.
        rank, failure = error.get_first_failure()
        message = failure.message if isinstance(failure.message, str) else failure.message.get("message")
        handler.why_closed = f"rank {rank} has failed with {failure.exitcode}: {message}"
        raise
    except SignalException:
        # A machine that has to end does not end the run: another may take its place.
        closes = False
        events.record(agent.get_event_failed(), config.event_log_handler)
        raise
    except Exception:
        events.record(agent.get_event_failed(), config.event_log_handler)
        raise
    finally:
        restore_signals()
        if closes:
            handler.shutdown()
        elif hasattr(handler, "leave"):  # a handler of another package may have none
            handler.leave()
