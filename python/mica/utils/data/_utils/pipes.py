"""What a DataLoader does with pipes: it seeds their shufflers, and lets each worker read its own shard."""

import sys

from mica import _C
from mica.utils.data.sampler import random_seed


def _bases():
    """The module of IterDataPipe and MapDataPipe; None while nobody has imported it, when nothing is a pipe."""
    return sys.modules.get("mica.utils.data.datapipes.datapipe")


def is_stream(dataset):
    bases = _bases()
    return bases is not None and isinstance(dataset, bases.IterDataPipe)


def is_pipe(dataset):
    bases = _bases()
    return bases is not None and isinstance(dataset, (bases.IterDataPipe, bases.MapDataPipe))


def wrapped(dataset, shuffle):
    """A pipe as a loader keeps it, so that it can be sent to workers; shuffling is turned on or off in a stream."""
    bases = _bases()
    if not is_stream(dataset):
        return bases._MapDataPipeSerializationWrapper(dataset)
    from mica.utils.data.graph_settings import apply_shuffle_settings

    return bases._IterDataPipeSerializationWrapper(apply_shuffle_settings(dataset, shuffle))


def shared_seed(generator):
    """A seed that all processes of a group agree on: that of the first."""
    from mica import distributed

    seed = random_seed(generator)
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        agreed = _C.tensor(seed)
        distributed.broadcast(agreed, src=0)
        seed = agreed.item()
    return seed


def seed_stream(dataset, seed):
    """Give the shufflers of a stream seeds that follow from this one."""
    from mica.utils.data.graph_settings import apply_random_seed

    apply_random_seed(dataset, _C.Generator().manual_seed(seed))


def process_place():
    """(number of processes in the group, number of this one)."""
    from mica import distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0


def shard(dataset, place, worker_id=0, num_workers=1):
    """Let a pipe read the shard of one worker of one process: neighbours in the data go to different processes."""
    from mica.utils.data.graph_settings import apply_sharding

    processes, rank = place
    apply_sharding(dataset, num_workers * processes, worker_id * processes + rank)
