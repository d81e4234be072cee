"""How machines meet: what a rendezvous gives, takes and may fail with."""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from mica.distributed.elastic.utils.logging import get_logger

__all__ = [
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousError",
    "RendezvousGracefulExitError",
    "RendezvousHandler",
    "RendezvousHandlerCreator",
    "RendezvousHandlerRegistry",
    "RendezvousInfo",
    "RendezvousParameters",
    "RendezvousStateError",
    "RendezvousStoreInfo",
    "RendezvousTimeoutError",
    "rendezvous_handler_registry",
]

logger = get_logger(__name__)


class RendezvousError(Exception):
    """Machines could not meet."""


class RendezvousClosedError(RendezvousError):
    """Raised when a machine tries to join a run that is over."""


class RendezvousTimeoutError(RendezvousError):
    """Not enough machines came in time."""


class RendezvousConnectionError(RendezvousError):
    """The store through which machines meet cannot be reached."""


class RendezvousStateError(RendezvousError):
    """The error for contents of the store that cannot be understood."""


class RendezvousGracefulExitError(RendezvousError):
    """This machine was not needed, and may leave."""


@dataclass
class RendezvousStoreInfo:
    """Where the processes of a run find the store that they share."""

    MASTER_ADDR_KEY: ClassVar[str] = "MASTER_ADDR"
    MASTER_PORT_KEY: ClassVar[str] = "MASTER_PORT"
    master_addr: str
    master_port: int

    @staticmethod
    def build(rank, store, local_addr, server_port=None):
        """Rank 0 says where that is, the others read it."""
        from mica.distributed.elastic.utils.distributed import get_free_port

        if rank == 0:
            store.set(RendezvousStoreInfo.MASTER_ADDR_KEY, (local_addr or socket.getfqdn()).encode())
            store.set(RendezvousStoreInfo.MASTER_PORT_KEY, str(server_port or get_free_port()).encode())
        address = store.get(RendezvousStoreInfo.MASTER_ADDR_KEY).decode()
        port = int(store.get(RendezvousStoreInfo.MASTER_PORT_KEY).decode())
        return RendezvousStoreInfo(master_addr=address, master_port=port)


class RendezvousInfo:
    """The facts that a machine knows when it has met the others."""

    def __init__(self, store, rank, world_size, bootstrap_store_info):
        self._store, self._rank, self._world_size = store, rank, world_size
        self._bootstrap_store_info = bootstrap_store_info

    store = property(lambda self: self._store)
    rank = property(lambda self: self._rank)
    world_size = property(lambda self: self._world_size)
    bootstrap_store_info = property(lambda self: self._bootstrap_store_info)


class RendezvousHandler(ABC):
    """Lets this machine meet the others of a run, again after each failure."""

    @abstractmethod
    def get_backend(self):
        """The name of the way in which they meet."""

    # The prefix of the processes' keys in a store that outlives a restart. Empty where each round has a store of its
    # own.
    store_prefix = ""

    @property
    def use_agent_store(self):
        """Whether processes use the store of the launcher that started them."""
        return False

    @abstractmethod
    def next_rendezvous(self):
        """Wait until enough machines have come. Returns RendezvousInfo."""

    @abstractmethod
    def is_closed(self):
        """Whether the run is over."""

    @abstractmethod
    def set_closed(self):
        """Say that the run is over."""

    @abstractmethod
    def num_nodes_waiting(self):
        """How many machines wait to be let in."""

    @abstractmethod
    def get_run_id(self):
        """The name of the run."""

    def leave(self):
        """Take no part any more, while the run goes on without this machine."""
        return None

    @abstractmethod
    def shutdown(self):
        """Leave, and let nobody in any more. Returns whether that was done."""


class RendezvousParameters:
    """The parameters of a rendezvous."""

    def __init__(self, backend, endpoint, run_id, min_nodes, max_nodes, local_addr=None, **kwargs):
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        if min_nodes < 1:
            raise ValueError(f"The minimum number of rendezvous nodes ({min_nodes}) must be greater than zero.")
        if max_nodes < min_nodes:
            raise ValueError(
                f"The maximum number of rendezvous nodes ({max_nodes}) must be greater than or equal to the minimum "
                f"number of rendezvous nodes ({min_nodes})."
            )
        self.backend, self.endpoint, self.run_id = backend, endpoint, run_id
        self.min_nodes, self.max_nodes, self.local_addr, self.config = min_nodes, max_nodes, local_addr, kwargs

    def get(self, key, default=None):
        return self.config.get(key, default)

    def get_as_bool(self, key, default=None):
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        word = str(value).lower()
        if word in ("1", "true", "t", "yes", "y"):
            return True
        if word in ("0", "false", "f", "no", "n"):
            return False
        raise ValueError(f"The rendezvous configuration option '{key}' does not represent a valid boolean value.")

    def get_as_int(self, key, default=None):
        value = self.get(key, default)
        try:
            return value if value is None else int(value)
        except ValueError as error:
            raise ValueError(
                f"The rendezvous configuration option '{key}' does not represent a valid integer value."
            ) from error


RendezvousHandlerCreator = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """The ways in which machines can meet, by name."""

    def __init__(self):
        self._registry = {}

    def register(self, backend, creator):
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        present = self._registry.get(backend)
        if present is not None and present != creator:
            raise ValueError(
                f"The rendezvous backend '{backend}' cannot be registered with '{creator}' as it is already registered "
                f"with '{present}'."
            )
        self._registry[backend] = creator

    def _register_those_of_packages(self):
        from importlib.metadata import entry_points

        for each in entry_points(group="torchrun.handlers"):
            try:
                self.register(each.name, each.load()())
            except Exception:
                logger.warning("the rendezvous %s of another package cannot be used:", each.name, exc_info=True)

    def create_handler(self, params):
        if params.backend not in self._registry:
            # Done only now, because asking all installed packages takes longer than the rest of a launch.
            self._register_those_of_packages()
        if params.backend not in self._registry:
            raise ValueError(
                f"The rendezvous backend '{params.backend}' is not registered. Did you forget to call `register`?"
            )
        handler = self._registry[params.backend](params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"The rendezvous backend '{handler.get_backend()}' does not match the requested backend "
                f"'{params.backend}'."
            )
        return handler


rendezvous_handler_registry = RendezvousHandlerRegistry()
