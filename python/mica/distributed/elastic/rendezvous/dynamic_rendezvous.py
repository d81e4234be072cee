"""A rendezvous of machines that come and go: as many as there are, between a least and a most."""

import contextlib
import itertools
import os
import random
import socket
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta

from mica.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from mica.distributed.elastic.rendezvous.rendezvous_state import State, Watch
from mica.distributed.elastic.utils.logging import get_logger

__all__ = [
    "DynamicRendezvousHandler",
    "RendezvousBackend",
    "RendezvousSettings",
    "RendezvousTimeout",
    "create_handler",
]

logger = get_logger(__name__)
_local_ids = itertools.count()


class RendezvousBackend(ABC):
    """Where the state of a rendezvous is kept."""

    @property
    @abstractmethod
    def name(self):
        """The name of the kind."""

    @abstractmethod
    def get_state(self):
        """The state and a token of it, or None."""

    @abstractmethod
    def set_state(self, state, token=None):
        """Set the state if it still is the token's. Returns the state then, its token, and whether it is this one."""


class RendezvousTimeout:
    """How long a machine waits: for enough others (join), for more than enough (last_call), to close, to be heard."""

    _DEFAULTS = {"join": 600, "last_call": 30, "close": 30, "heartbeat": 5}  # noqa: RUF012

    def __init__(self, join=None, last_call=None, close=None, heartbeat=None):
        given = {"join": join, "last_call": last_call, "close": close, "heartbeat": heartbeat}
        for name, value in given.items():
            value = timedelta(seconds=self._DEFAULTS[name]) if value is None else value
            if value <= timedelta(0):
                raise ValueError(f"The {name} timeout ({value}) must be positive.")
            setattr(self, f"_{name}", value)

    join = property(lambda self: self._join)
    last_call = property(lambda self: self._last_call)
    close = property(lambda self: self._close)
    heartbeat = property(lambda self: self._heartbeat)


@dataclass(repr=False, eq=False, frozen=True)
class RendezvousSettings:
    """The settings on which all machines of a run agree."""

    run_id: str
    min_nodes: int
    max_nodes: int
    timeout: RendezvousTimeout
    keep_alive_interval: timedelta
    keep_alive_max_attempt: int


class DynamicRendezvousHandler(RendezvousHandler):
    """Meets whoever is there."""

    @classmethod
    def from_backend(
        cls, run_id, store, backend, min_nodes, max_nodes, local_addr=None, timeout=None, keep_alive_interval=5,
        keep_alive_max_attempt=3,
    ):  # fmt: skip
        if min_nodes < 1:
            raise ValueError(f"The minimum number of nodes ({min_nodes}) must be greater than zero.")
        if max_nodes < min_nodes:
            raise ValueError(
                f"The maximum number of nodes ({max_nodes}) must be greater than or equal to the minimum number of "
                f"nodes ({min_nodes})."
            )
        settings = RendezvousSettings(
            run_id, min_nodes, max_nodes, timeout or RendezvousTimeout(), timedelta(seconds=keep_alive_interval),
            keep_alive_max_attempt,
        )  # fmt: skip
        # A single machine needs no name that others can resolve.
        address = local_addr or ("localhost" if max_nodes == 1 else socket.getfqdn())
        return cls(f"{address}_{os.getpid()}_{next(_local_ids)}", address, settings, backend.name, store, backend)

    def __init__(self, node, address, settings, backend_name, store, backend):
        if not settings.run_id:
            raise ValueError("The run id must be a non-empty string.")
        self._node, self._address, self.settings = node, address, settings
        self._backend_name, self._store, self._backend = backend_name, store, backend
        interval = settings.keep_alive_interval.total_seconds()
        self._watch = Watch(interval * settings.keep_alive_max_attempt)
        self._lock = threading.RLock()
        self._alive = None  # set: the thread that counts ends
        self._server = None
        self.why_closed = ""

    def get_backend(self):
        return self._backend_name

    def get_run_id(self):
        return self.settings.run_id

    @property
    def use_agent_store(self):
        return os.getenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"

    def _change(self, rule):
        """Apply a rule to the state, again until nobody else has changed it in between. Returns the state then."""
        with self._lock:
            while True:
                found = self._backend.get_state()
                state, token = (State(), None) if found is None else (State.read(found[0]), found[1])
                before = state.bytes()
                dead = self._watch.dead(state, self._node)
                for node in dead:
                    logger.warning("The machine %s has not been heard of: it no longer takes part.", node)
                    state.drop(node)
                rule(state)
                after = state.bytes()
                if after == before and found is not None:
                    return state
                answer = self._backend.set_state(after, token)
                if answer is not None and answer[2]:
                    self._watch.forget(dead)
                    return state

    # -- joining

    def _try_join(self, state):
        if state.closed:
            spare = self._node in state.waiting and not state.why_closed
            raise (RendezvousGracefulExitError if spare else RendezvousClosedError)(self._closed_text(state))
        state.join(self._node)
        state.beats[self._node] += 1
        if state.complete or self._node not in state.participants:
            return
        count, settings = len(state.participants), self.settings
        quiet = self._watch.unchanged_for(state)
        if count > settings.max_nodes:  # machines beyond the limit wait
            for node in sorted(state.participants)[settings.max_nodes :]:
                del state.participants[node]
                state.waiting.append(node)
        if count >= settings.max_nodes or (
            count >= settings.min_nodes and quiet >= settings.timeout.last_call.total_seconds()
        ):
            state.finish()

    def _closed_text(self, state):
        reason = f": {state.why_closed}" if state.why_closed else ""
        return f"The rendezvous '{self.settings.run_id}' is closed{reason}"

    def next_rendezvous(self):
        from mica.distributed import PrefixStore

        self._stop_counting()
        self._server = None
        try:
            self._change(lambda state: state.drop(self._node))
            state = self._wait_for_round()
        except RendezvousError:
            self._stop_counting()
            raise
        rank, count = state.participants[self._node], len(state.participants)
        self._count_on()
        store = PrefixStore(f"torch.rendezvous.{self.settings.run_id}.{state.round}", self._store)
        return RendezvousInfo(store, rank, count, self._store_for_processes(rank, store))

    def _wait_for_round(self):
        end = time.monotonic() + self.settings.timeout.join.total_seconds()
        while True:
            state = self._change(self._try_join)
            if state.complete and self._node in state.participants:
                return state
            # A machine that waits beside a full round is a spare: it may wait as long as the run lasts.
            if time.monotonic() > end and not state.complete:
                self._change(lambda state: state.drop(self._node))
                raise RendezvousTimeoutError(
                    f"The rendezvous '{self.settings.run_id}' has {len(state.participants)} of at least "
                    f"{self.settings.min_nodes} machines after {self.settings.timeout.join}"
                )
            time.sleep(random.uniform(0.05, 0.2) if len(state.participants) > 1 else 0.05)

    def _store_for_processes(self, rank, store):
        """The store for the processes of a round. Each round has its own, which knows nothing of earlier rounds."""
        if not self.use_agent_store:
            return RendezvousStoreInfo.build(rank, store, self._address)
        if rank == 0:
            from mica.distributed import TCPStore

            self._server = TCPStore(self._address, 0, is_master=True, multi_tenant=True, wait_for_workers=False)
        return RendezvousStoreInfo.build(rank, store, self._address, self._server.port if rank == 0 else 0)

    # -- being heard

    def _count_on(self):
        self._alive = threading.Event()
        threading.Thread(target=self._count, args=(self._alive,), name="rendezvous", daemon=True).start()

    def _count(self, ended):
        def beat(state):
            if self._node in state.beats:
                state.beats[self._node] += 1

        while not ended.wait(self.settings.keep_alive_interval.total_seconds()):
            try:
                self._change(beat)
            except RendezvousError as error:
                logger.warning("The other machines cannot be told that this one lives: %s", error)

    def _stop_counting(self):
        if self._alive is not None:
            self._alive.set()
            self._alive = None

    # -- asking and leaving

    def is_closed(self):
        return self._change(lambda state: None).closed

    def set_closed(self):
        def close(state):
            if not state.closed:
                state.closed, state.why_closed = True, self.why_closed

        self._change(close)

    def num_nodes_waiting(self):
        """How many machines wait for the next round and would fit into it, this one too if the others have lost it."""
        state = self._change(lambda state: None)
        if self._node not in state.participants:
            return len(state.waiting) + (not state.closed)
        return len(state.waiting) if len(state.participants) < self.settings.max_nodes else 0

    def leave(self):
        """Take no part any more: the others need not wait until they have not heard of this machine for long."""
        self._stop_counting()
        with contextlib.suppress(RendezvousError):
            self._change(lambda state: state.drop(self._node))

    def shutdown(self):
        self._stop_counting()
        try:
            self.set_closed()
        except RendezvousError as error:
            # The machine that holds the store may have ended before this one.
            logger.info("The rendezvous could not be closed, its store is gone: %s", error)
            return False
        return True


def create_handler(store, backend, params):
    """The handler of a backend with the parameters' options."""
    seconds = {
        "join": params.get_as_int("join_timeout", 600),
        "last_call": params.get_as_int("last_call_timeout", 30),
        "close": params.get_as_int("close_timeout", 30),
        "heartbeat": params.get_as_int("heartbeat_timeout", 5),
    }
    timeout = RendezvousTimeout(**{name: timedelta(seconds=value) for name, value in seconds.items()})
    return DynamicRendezvousHandler.from_backend(
        params.run_id, store, backend, params.min_nodes, params.max_nodes, params.local_addr, timeout,
        params.get_as_int("keep_alive_interval", 5), params.get_as_int("keep_alive_max_attempt", 3),
    )  # fmt: skip
