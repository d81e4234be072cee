"""Datasets, samplers, and the loader that makes batches of them."""

from mica.utils.data.dataloader import DataLoader, _DatasetKind, default_collate, default_convert, get_worker_info
from mica.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from mica.utils.data.distributed import DistributedSampler
from mica.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

# Pipes are loaded when one is asked for.
_LATER = {
    "DFIterDataPipe": "datapipe",
    "DataChunk": "datapipe",
    "IterDataPipe": "datapipe",
    "MapDataPipe": "datapipe",
    "argument_validation": "_decorator",
    "functional_datapipe": "_decorator",
    "guaranteed_datapipes_determinism": "_decorator",
    "non_deterministic": "_decorator",
    "runtime_validation": "_decorator",
    "runtime_validation_disabled": "_decorator",
}


def __getattr__(name):
    import importlib

    if name in _LATER:
        importlib.import_module("mica.utils.data.datapipes")  # registers the methods of pipes
        value = getattr(importlib.import_module(f"mica.utils.data.datapipes.{_LATER[name]}"), name)
    elif name in ("backward_compatibility", "datapipes", "graph", "graph_settings"):
        value = importlib.import_module(f"mica.utils.data.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DFIterDataPipe",
    "DataChunk",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterDataPipe",
    "IterableDataset",
    "MapDataPipe",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "_DatasetKind",
    "argument_validation",
    "default_collate",
    "default_convert",
    "functional_datapipe",
    "get_worker_info",
    "guaranteed_datapipes_determinism",
    "non_deterministic",
    "random_split",
    "runtime_validation",
    "runtime_validation_disabled",
]
