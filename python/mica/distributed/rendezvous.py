"""How processes find each other: env://, tcp:// and file:// give a store, a rank and the size of the world."""

import datetime
import os

from mica.distributed.schedulers import told_by_scheduler
from mica.distributed.store import FileStore, PrefixStore, TCPStore

__all__ = ["register_rendezvous_handler", "rendezvous"]

default_pg_timeout = datetime.timedelta(seconds=1800)
_handlers = {}
_kept = {}  # servers of env:// and tcp://, which outlive a group: others may still ask them
_generations = {}


def register_rendezvous_handler(scheme, handler):
    """Let `handler(url, timeout)` make stores for URLs of a scheme."""
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(url, rank=-1, world_size=-1, **options):
    """Yields a store, this process's rank and the size of the world."""
    from urllib.parse import urlparse

    if not isinstance(url, (str, bytes)):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    if isinstance(rank, bool) or not isinstance(rank, int):
        raise RuntimeError(f"`rank` must be an integer. {rank}")
    if isinstance(world_size, bool) or not isinstance(world_size, int):
        raise RuntimeError(f"`world_size` must be an integer. {world_size}")
    parts = urlparse(url)
    if parts.scheme not in _handlers:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    if rank != -1 or world_size != -1:
        asked = dict(item.split("=") for item in parts.query.split("&") if item)
        if "rank" in asked or "world_size" in asked:
            raise AssertionError(f"The url: {url} has node-specific arguments(rank, world_size) already.")
        if rank != -1:
            asked["rank"] = str(rank)
        if world_size != -1:
            asked["world_size"] = str(world_size)
        parts = parts._replace(query="&".join(f"{name}={value}" for name, value in asked.items()))
    return _handlers[parts.scheme](parts.geturl(), **options)


def _query(url):
    from urllib.parse import urlparse

    parts = urlparse(url)
    return parts, dict(item.split("=") for item in parts.query.split("&") if item)


def _server_store(host, port, rank, world_size, timeout, libuv=None):
    """The store at an address: rank 0 serves it, unless the launcher does. Each world that is started there has its own keys."""
    libuv = (libuv or os.environ.get("USE_LIBUV", "1")) == "1"
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        store = TCPStore(host, port, world_size, False, timeout, wait_for_workers=False, use_libuv=libuv)
        # Set where the store outlives a restart. Machines may have restarted different numbers of times, so their
        # counts cannot be used.
        if prefix := os.environ.get("MICA_STORE_PREFIX"):
            store = PrefixStore(prefix, store)
    else:
        store = TCPStore(
            host, port, world_size, rank == 0, timeout, wait_for_workers=False, multi_tenant=True, use_libuv=libuv
        )
        if rank == 0 and port:
            _kept[port] = store._server
    generation = _generations[host, port] = _generations.get((host, port), -1) + 1
    return PrefixStore(f"world{generation}", store) if generation else store


def _variable(name):
    value = os.environ.get(name) or told_by_scheduler().get(name)
    if value is None:
        raise ValueError(
            f"Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected, but not set"
        )
    return value


def _from_environment(url, timeout=default_pg_timeout, **options):
    _, asked = _query(url)
    rank = int(asked["rank"]) if "rank" in asked else int(_variable("RANK"))
    world_size = int(asked["world_size"]) if "world_size" in asked else int(_variable("WORLD_SIZE"))
    host, port = _variable("MASTER_ADDR"), int(_variable("MASTER_PORT"))
    yield _server_store(host, port, rank, world_size, timeout, asked.get("use_libuv")), rank, world_size
    raise RuntimeError("Unable to perform rerendezvous using env:// method")


def _from_address(url, timeout=default_pg_timeout, **options):
    parts, asked = _query(url)
    if parts.port is None:
        raise ValueError("Error initializing torch.distributed using tcp:// rendezvous: port number missing")
    for name in ("rank", "world_size"):
        if name not in asked:
            what = "rank" if name == "rank" else "world size"
            raise ValueError(f"Error initializing torch.distributed using tcp:// rendezvous: {what} parameter missing")
    rank, world_size = int(asked["rank"]), int(asked["world_size"])
    if not parts.hostname:
        raise AssertionError("hostname cannot be None")
    store = _server_store(parts.hostname, parts.port, rank, world_size, timeout, asked.get("use_libuv"))
    yield store, rank, world_size
    raise RuntimeError("Unable to perform re-rendezvous using tcp:// method")


def _from_file(url, **options):
    parts, asked = _query(url)
    if not parts.path:
        raise ValueError("Error initializing torch.distributed using file:// rendezvous: path missing")
    for name in ("rank", "world_size"):
        if name not in asked:
            what = "rank" if name == "rank" else "world size"
            raise ValueError(f"Error initializing torch.distributed using file:// rendezvous: {what} parameter missing")
    rank, world_size = int(asked["rank"]), int(asked["world_size"])
    yield FileStore(parts.path, world_size), rank, world_size
    raise RuntimeError("Unable to perform rerendezvous using file:// method")


register_rendezvous_handler("env", _from_environment)
register_rendezvous_handler("tcp", _from_address)
register_rendezvous_handler("file", _from_file)
