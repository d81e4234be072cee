"""One batch from a dataset."""

from mica import _C
from mica.utils.data._utils import collate
from mica.utils.data._utils.worker import shared_empty
from mica.utils.data.dataset import Subset, TensorDataset


class _BaseDatasetFetcher:
    ends = False  # by StopIteration, as a stream does

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last

    def fetch(self, possibly_batched_index):
        raise NotImplementedError


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """From a stream; StopIteration at its end."""

    ends = True

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False

    def fetch(self, possibly_batched_index):
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        samples = []
        for _ in possibly_batched_index:
            try:
                samples.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not samples or (self.drop_last and len(samples) < len(possibly_batched_index)):
            raise StopIteration
        return self.collate_fn(samples)


class _MapDatasetFetcher(_BaseDatasetFetcher):
    """Fetches the samples of a map-style dataset by their indices."""

    def fetch(self, possibly_batched_index):
        if not self.auto_collation:
            return self.collate_fn(self.dataset[possibly_batched_index])
        if self.collate_fn is collate.default_collate:
            rows = _rows(self.dataset, possibly_batched_index)
            if rows is not None:
                return rows
        if callable(getattr(self.dataset, "__getitems__", None)):
            samples = self.dataset.__getitems__(possibly_batched_index)
        else:
            samples = [self.dataset[index] for index in possibly_batched_index]
        return self.collate_fn(samples)


def _rows(dataset, indices):
    """The rows of a TensorDataset in one step, with the same result as taking them one by one and stacking them. None for other
    datasets."""
    while type(dataset) is Subset:
        indices = [dataset.indices[index] for index in indices]
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or not indices:
        return None
    tensors = dataset.tensors
    if collate.default_collate_fn_map.get(_C.Tensor) is not collate.collate_tensor_fn:
        return None
    if not all(type(tensor) is _C.Tensor and tensor.is_cpu and not tensor.requires_grad for tensor in tensors):
        return None
    if not all(type(index) is int for index in indices):
        return None
    n = len(dataset)
    if min(indices) < -n or max(indices) >= n:
        return None  # the error concerns a single row
    index = _C.tensor(indices) if min(indices) >= 0 else _C.tensor([each % n for each in indices])
    return [
        _C.index_select(
            tensor, 0, index, out=shared_empty((len(indices), *tensor.shape[1:]), tensor.dtype, tensor.device)
        )
        for tensor in tensors
    ]
