"""A store for agents that meet, and ports that are free."""

import datetime
from contextlib import closing

from mica.distributed.elastic.utils.api import get_socket_with_port
from mica.distributed.elastic.utils.store import barrier

__all__ = ["create_c10d_store", "get_free_port", "get_socket_with_port"]


def create_c10d_store(
    is_server, server_addr, server_port=-1, world_size=1, timeout=600, wait_for_workers=True, retries=3, use_libuv=None
):
    """A store of a server that this process is or asks. Without a port, a free one is taken."""
    from mica.distributed import TCPStore

    if server_port == -1 and world_size > 1:
        raise ValueError(
            f"server_port must be specified when world_size > 1, got server_port={server_port}, world_size={world_size}"
        )
    made = TCPStore(
        server_addr,
        max(server_port, 0),
        world_size,
        is_server,
        datetime.timedelta(seconds=timeout),
        wait_for_workers=wait_for_workers,
        use_libuv=use_libuv is not False,
    )
    if wait_for_workers:
        barrier(made, world_size, "_tcp_store/num_members", timeout)
    return made


def get_free_port():
    """The number of a port that was free a moment ago."""
    with closing(get_socket_with_port()) as made:
        return made.getsockname()[1]
