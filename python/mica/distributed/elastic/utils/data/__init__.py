"""Data for a training that is started again: the part of a dataset that is still to come, for as many ranks as there are now."""

from mica.distributed.elastic.utils.data.cycling_iterator import CyclingIterator
from mica.distributed.elastic.utils.data.elastic_distributed_sampler import ElasticDistributedSampler

__all__ = ["CyclingIterator", "ElasticDistributedSampler"]
