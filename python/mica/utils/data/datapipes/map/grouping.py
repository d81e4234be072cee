"""Samples in batches."""

from collections.abc import Sized

from mica.utils.data.datapipes._decorator import functional_datapipe
from mica.utils.data.datapipes.datapipe import DataChunk, MapDataPipe

__all__ = ["BatcherMapDataPipe"]


@functional_datapipe("batch")
class BatcherMapDataPipe(MapDataPipe[DataChunk]):
    """Lists of batch_size samples by their number; drop_last leaves out a last one that is shorter."""

    def __init__(self, datapipe, batch_size, drop_last=False, wrapper_class=DataChunk):
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        super().__init__()
        self.datapipe = datapipe
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.wrapper_class = wrapper_class

    def __getitem__(self, index):
        batch = []
        try:
            for place in range(index * self.batch_size, (index + 1) * self.batch_size):
                batch.append(self.datapipe[place])
        except IndexError as error:
            if self.drop_last or not batch:
                raise IndexError(f"Index {index} is out of bound.") from error
        return self.wrapper_class(batch)

    def __len__(self):
        if not isinstance(self.datapipe, Sized):
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        length = len(self.datapipe)
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)
