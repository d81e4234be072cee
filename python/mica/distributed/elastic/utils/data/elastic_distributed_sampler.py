"""The part of a dataset from an index on, split among ranks."""

import math

import mica
from mica.utils.data.distributed import DistributedSampler

__all__ = ["ElasticDistributedSampler"]


class ElasticDistributedSampler(DistributedSampler):
    """Samples of this rank, shuffled by epoch, among those that come from start_index on."""

    def __init__(self, dataset, num_replicas=None, rank=None, start_index=0):
        super().__init__(dataset, num_replicas=num_replicas, rank=rank)
        if start_index >= len(dataset):
            raise ValueError(f"Start index {start_index} should be less than dataset size {len(dataset)}")
        self.start_index = start_index
        self.num_samples = math.ceil((len(dataset) - start_index) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self):
        shuffle = mica.Generator().manual_seed(self.epoch)
        left = len(self.dataset) - self.start_index
        indices = mica.randperm(left, generator=shuffle).add(self.start_index).tolist()
        indices += indices[: self.total_size - len(indices)]  # so that all ranks have the same number
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self):
        return self.num_samples
