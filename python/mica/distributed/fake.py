"""The backend "fake": a rank of a world of any size whose collectives do nothing. For tests of one process."""

from mica.distributed.work import Work


class FakeBackend:
    """A backend whose collectives do nothing: each is complete when it is called, and tensors keep their values."""

    supports_splitting = supports_coalescing = supports_time_estimate = False

    def __init__(self, rank, size):
        self._rank, self._size = rank, size

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def name(self):
        return "fake"

    getBackendName = name

    def set_timeout(self, timeout):
        pass

    def abort(self, why=""):
        pass

    shutdown = abort

    def _done(self, tensors=(), *args, **options):
        return Work(list(tensors) if isinstance(tensors, (list, tuple)) else [tensors])

    allreduce = allreduce_coalesced = reduce = broadcast = allgather = _allgather_base = allgather_coalesced = _done
    allgather_into_tensor_coalesced = gather = scatter = reduce_scatter = _reduce_scatter_base = _done
    reduce_scatter_tensor_coalesced = alltoall = alltoall_base = send = recv = recv_anysource = _done
    all_gather_single = reduce_scatter_single = _done

    def barrier(self, opts=None):
        return Work()
