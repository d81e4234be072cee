"""The errors of distributed calls."""


class DistError(RuntimeError):
    """An error of processes that compute together."""


class DistBackendError(DistError):
    """A collective or a message has failed."""


class DistNetworkError(DistError):
    """Another machine or process cannot be reached."""


class DistStoreError(DistError):
    """A key was not there in time."""


class QueueEmptyError(DistStoreError):
    """Raised when a queue is empty."""


for _each in (DistError, DistBackendError, DistNetworkError, DistStoreError, QueueEmptyError):
    _each.__module__ = "torch.distributed"
