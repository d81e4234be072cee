"""A store that a thread of one process serves to others."""

import os
import time
import weakref

from mica.distributed._errors import DistNetworkError, DistStoreError, QueueEmptyError
from mica.distributed._store_base import _DEFAULT_TIMEOUT, Store, _check_keys, _seconds

_servers = weakref.WeakValueDictionary()  # by port, for stores that share one


class _Server:
    """A server with a name for weak references."""

    def __init__(self, port, listening):
        from mica.distributed._engine import engine

        self.engine = engine.StoreServer(port, -1 if listening is None else listening)
        self.port = self.engine.port


def _served_by_agent(port):
    """Whether the launcher of this process holds the store at this port."""
    told = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") in ("1", "True")
    return told and os.environ.get("MASTER_PORT") == str(port)


class TCPStore(Store):
    """Keys and values of a server, which is a thread of the process that says `is_master`."""

    def __init__(
        self, host_name, port=0, world_size=None, is_master=False, timeout=_DEFAULT_TIMEOUT, wait_for_workers=True,
        multi_tenant=False, master_listen_fd=None, use_libuv=True,
    ):  # fmt: skip
        super().__init__()
        from mica.distributed._engine import engine

        if world_size == 0:
            raise ValueError("TCPStore world size cannot be 0")
        self._use_libuv = bool(use_libuv)
        self._timeout, self._host, self._world_size = timeout, host_name, world_size
        self._server = None
        if is_master:
            self._server = _servers.get(port) if multi_tenant and port else None
            if self._server is None:
                try:
                    self._server = _Server(port, master_listen_fd)
                except DistNetworkError:
                    if not _served_by_agent(port):
                        raise
                if multi_tenant and self._server is not None:
                    _servers[self._server.port] = self._server
            port = self._server.port if self._server is not None else port
        self._port = port
        # The server's own process may not be able to reach itself by the name that others use.
        address = "localhost" if is_master else host_name
        self._client = engine.StoreClient(address, port, _seconds(timeout))
        if world_size is not None and wait_for_workers:
            self._wait_for_workers()

    def _wait_for_workers(self):
        here = self.add("init/", 1)
        if self._server is None:
            return
        all_here, end = -(-here // self._world_size) * self._world_size, time.monotonic() + self._limit()
        while here < all_here:
            if time.monotonic() > end:
                raise DistStoreError(
                    f"Timed out after {self._limit():.0f} seconds waiting for clients. "
                    f"{here}/{self._world_size} clients joined."
                )
            time.sleep(0.005)
            here = self.add("init/", 0)

    @property
    def host(self):
        return self._host

    @property
    def port(self):
        return self._port

    @property
    def libuvBackend(self):
        """The value that the program gave. It changes nothing, because there is one kind of server."""
        return self._use_libuv

    def set(self, key, value):
        self._client.set([key], [value])

    def get(self, key):
        return self.multi_get([key])[0]

    def multi_get(self, keys):
        keys = _check_keys(keys)
        values = self._client.get(keys, self._limit())
        if values is None:
            self._timed_out(keys)
        return values

    def multi_set(self, keys, values):
        keys = _check_keys(keys)
        if len(keys) != len(values):
            raise ValueError(f"multi_set: {len(keys)} keys and {len(values)} values")
        self._client.set(keys, list(values))

    def add(self, key, value):
        return self._client.add(key, value)

    def append(self, key, value):
        self._client.append(key, value)

    def compare_set(self, key, expected_value, desired_value):
        return self._client.compare_set(key, expected_value, desired_value)

    def check(self, keys):
        return self._client.check(_check_keys(keys))

    def wait(self, keys, timeout=None):
        keys = _check_keys(keys)
        if not self._client.wait(keys, self._limit(timeout)):
            self._timed_out(keys, timeout)

    def delete_key(self, key):
        return self._client.delete(key)

    def num_keys(self):
        return self._client.count()

    def list_keys(self):
        return self._client.keys()

    def queue_push(self, key, value):
        self._client.push(key, value)

    def queue_pop(self, key, block=True):
        value = self._client.pop(key, self._limit() if block else 0)
        if value is None and not block:
            raise QueueEmptyError(f"queue is empty: {key}")
        if value is None:
            self._timed_out([key])
        return value

    def queue_len(self, key):
        return self._client.length(key)

    def has_extended_api(self):
        return True

    def clone(self):
        """A connection of its own to the same server."""
        made = TCPStore(self._host if self._server is None else "localhost", self._port, timeout=self._timeout)
        made._server = self._server
        return made

    def __repr__(self):
        return f"TCPStore(host={self._host!r}, port={self._port}, is_master={self._server is not None})"
