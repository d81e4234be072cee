"""Records of what happens in a run: when processes start, end and fail."""

import inspect
import logging
import os
import socket
import traceback

from mica.distributed.elastic.events.api import Event, EventMetadataValue, EventSource, NodeState, RdzvEvent
from mica.distributed.elastic.events.handlers import get_logging_handler

__all__ = [
    "Event",
    "EventMetadataValue",
    "EventSource",
    "NodeState",
    "RdzvEvent",
    "construct_and_record_rdzv_event",
    "get_logging_handler",
    "record",
    "record_rdzv_event",
]

_events_loggers = {}


def _get_or_create_logger(destination="null"):
    """The logger of a destination. Its records go nowhere else."""
    if destination not in _events_loggers:
        made = logging.getLogger(f"torchelastic-events-{destination}")
        made.setLevel(os.environ.get("LOGLEVEL", "INFO"))
        made.propagate = False
        made.addHandler(get_logging_handler(destination))
        _events_loggers[destination] = made
    return _events_loggers[destination]


def record(event, destination="null"):
    _get_or_create_logger(destination).info(event.serialize())


def record_rdzv_event(event):
    _get_or_create_logger("dynamic_rendezvous").info(event.serialize())


def construct_and_record_rdzv_event(
    run_id, message, node_state, name="", hostname="", pid=None, master_endpoint="", local_id=None, rank=None
):
    """Record an event of a rendezvous, unless such records go nowhere."""
    if isinstance(get_logging_handler("dynamic_rendezvous"), logging.NullHandler):
        return
    caller = inspect.currentframe().f_back.f_code
    record_rdzv_event(
        RdzvEvent(
            name=f"{os.path.basename(caller.co_filename)}:{name or caller.co_name}",
            run_id=run_id,
            message=message,
            hostname=hostname or socket.getfqdn(),
            pid=pid or os.getpid(),
            node_state=node_state,
            master_endpoint=master_endpoint,
            rank=rank,
            local_id=local_id,
            error_trace=traceback.format_exc() if node_state == NodeState.FAILED else "",
        )
    )
