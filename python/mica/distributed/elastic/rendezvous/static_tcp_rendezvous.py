"""A rendezvous of a fixed number of machines, each of which was told its rank: machine 0 holds the store."""

import datetime

from mica.distributed.elastic.rendezvous.api import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo
from mica.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

__all__ = ["StaticTCPRendezvous", "create_rdzv_handler"]


class StaticTCPRendezvous(RendezvousHandler):
    """Machines that know each other's number."""

    def __init__(self, master_addr, master_port, rank, world_size, run_id, timeout):
        self.master_addr, self.master_port = master_addr, master_port
        self.rank, self.world_size, self.run_id = rank, world_size, run_id
        self.timeout = datetime.timedelta(seconds=timeout)
        self._store, self._round = None, 0

    def get_backend(self):
        return "static"

    @property
    def use_agent_store(self):
        return True

    def next_rendezvous(self):
        from mica.distributed import PrefixStore, TCPStore

        if self._store is None:
            self._store = TCPStore(
                self.master_addr,
                self.master_port,
                self.world_size,
                self.rank == 0,
                self.timeout,
                multi_tenant=True,
            )
        # All agents restart equally often, so their counts agree, and keys that an earlier attempt has left in the
        # store are not read.
        store = PrefixStore(f"{self.run_id}/{self._round}", self._store)
        self.store_prefix = f"/worker/attempt_{self._round}"
        self._round += 1
        return RendezvousInfo(
            store, self.rank, self.world_size, RendezvousStoreInfo(self.master_addr, self.master_port)
        )

    def is_closed(self):
        return False

    def set_closed(self):
        """Does nothing: machines of a fixed number neither come nor go."""

    def num_nodes_waiting(self):
        return 0

    def get_run_id(self):
        return self.run_id

    def shutdown(self):
        return True


def create_rdzv_handler(params):
    """The handler of --rdzv-backend=static."""
    if "rank" not in params.config:
        raise ValueError("rank is absent in RendezvousParameters.Try add --node-rank to the cmd request")
    endpoint = params.endpoint.strip()
    if not endpoint:
        raise ValueError(
            "endpoint is absent in RendezvousParametersTry add --master-port and --master-addr to the cmd request"
        )
    address, port = parse_rendezvous_endpoint(endpoint, -1)
    if port == -1:
        raise ValueError(f"Port is absent in endpoint: {endpoint}. Try launching with --master-port")
    rank, timeout = int(params.config["rank"]), int(params.config.get("timeout", 600))
    return StaticTCPRendezvous(address, port, rank, params.max_nodes, params.run_id, timeout)
