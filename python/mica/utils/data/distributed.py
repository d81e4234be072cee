"""A sampler for training on many machines: each takes its own part of the dataset."""

import math

from mica import _C
from mica.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


def _of_process_group(what):
    try:
        import mica.distributed as distributed
    except ImportError:
        raise RuntimeError(
            "Requires distributed package to be available: give DistributedSampler num_replicas and rank"
        ) from None
    return getattr(distributed, what)()


class DistributedSampler(Sampler):
    """Every num_replicas-th index of an order that all replicas know. Call set_epoch, for another order in each epoch.

    Args:
        dataset: whose indices are divided
        num_replicas, rank: how many processes there are, and which this is; those of the group if they are not given
        shuffle: whether the order is random
        seed: of the order; the same on all processes
        drop_last: whether indices that do not divide evenly are left out; otherwise the first come again

    Example::

        sampler = DistributedSampler(dataset)
        loader = DataLoader(dataset, batch_size=32, sampler=sampler)
        for epoch in range(10):
            sampler.set_epoch(epoch)
            train(loader)
    """

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        if num_replicas is None:
            num_replicas = _of_process_group("get_world_size")
        if rank is None:
            rank = _of_process_group("get_rank")
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        length = len(dataset)
        if drop_last and length % num_replicas:
            self.num_samples = math.ceil((length - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(length / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self):
        if self.shuffle:
            generator = _C.Generator().manual_seed(self.seed + self.epoch)
            indices = _C.randperm(len(self.dataset), generator=generator).tolist()
        else:
            indices = list(range(len(self.dataset)))
        # All replicas get the same number: the first indices come again, or the last ones are left out.
        missing = self.total_size - len(indices)
        if missing > 0 and not self.drop_last:
            indices += (indices * math.ceil(missing / len(indices)))[:missing]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """Choose the order of this epoch."""
        self.epoch = epoch
