"""Samples in batches and groups."""

from mica.utils.data.datapipes._decorator import functional_datapipe
from mica.utils.data.datapipes.datapipe import DataChunk, IterDataPipe
from mica.utils.data.datapipes.iter._lengths import length_of
from mica.utils.data.datapipes.utils.common import _check_unpickable_fn

__all__ = ["BatcherIterDataPipe", "GrouperIterDataPipe", "UnBatcherIterDataPipe"]


@functional_datapipe("batch")
class BatcherIterDataPipe(IterDataPipe[DataChunk]):
    """Lists of batch_size samples; drop_last leaves out a last one that is shorter."""

    def __init__(self, datapipe, batch_size, drop_last=False, wrapper_class=DataChunk):
        if batch_size <= 0:
            raise AssertionError(f"Batch size is required to be larger than 0! It is {batch_size}")
        super().__init__()
        self.datapipe = datapipe
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.wrapper_class = wrapper_class

    def __iter__(self):
        batch = []
        for sample in self.datapipe:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self):
        length = length_of(self, self.datapipe)[0]
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe):
    """The samples of nested batches, `unbatch_level` levels down; -1 takes all levels apart."""

    def __init__(self, datapipe, unbatch_level=1):
        self.datapipe = datapipe
        self.unbatch_level = unbatch_level

    def __iter__(self):
        for element in self.datapipe:
            yield from self._dive(element, self.unbatch_level)

    def _dive(self, element, unbatch_level):
        if unbatch_level < -1:
            raise ValueError(f"unbatch_level must be -1 or >= 0, but got {unbatch_level}")
        if unbatch_level == 0 or (unbatch_level == -1 and not isinstance(element, list)):
            yield element
            return
        if not isinstance(element, list):
            raise IndexError(f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe")
        for each in element:
            yield from self._dive(each, max(unbatch_level - 1, -1))


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe[DataChunk]):
    """Lists of samples with the same key: when group_size are there, when the buffer is full, and at the end."""

    def __init__(
        self,
        datapipe,
        group_key_fn,
        *,
        keep_key=False,
        buffer_size=10000,
        group_size=None,
        guaranteed_group_size=None,
        drop_remaining=False,
    ):
        _check_unpickable_fn(group_key_fn)
        if group_size is not None and buffer_size is not None and not 0 < group_size <= buffer_size:
            raise AssertionError(
                f"group_size must be > 0 and <= buffer_size, but got {group_size} with a buffer_size of {buffer_size}"
            )
        if guaranteed_group_size is not None and (group_size is None or not 0 < guaranteed_group_size <= group_size):
            raise AssertionError("guaranteed_group_size must be > 0 and <= group_size and group_size must be set")
        self.datapipe = datapipe
        self.group_key_fn = group_key_fn
        self.keep_key = keep_key
        self.max_buffer_size = buffer_size
        self.group_size = group_size
        self.guaranteed_group_size = guaranteed_group_size
        if guaranteed_group_size is None and buffer_size is not None:
            self.guaranteed_group_size = group_size
        self.drop_remaining = drop_remaining
        self.wrapper_class = DataChunk
        self.reset()

    def reset(self):
        self.buffer_elements = {}
        self.curr_buffer_size = 0

    def _pop(self, key):
        samples = self.buffer_elements.pop(key)
        self.curr_buffer_size -= len(samples)
        return samples

    def _remove_biggest_key(self):
        """Makes room: the key and the samples of the largest group, or None in place of a group that is too small."""
        key = max(self.buffer_elements, key=lambda each: len(self.buffer_elements[each]))
        too_small = len(self.buffer_elements[key]) < (self.guaranteed_group_size or 0)
        if too_small and not self.drop_remaining:
            raise RuntimeError("Failed to group items", str(self.buffer_elements[key]))
        samples = self._pop(key)
        return key, None if too_small else samples

    def _group(self, key, samples):
        chunk = self.wrapper_class(samples)
        return (key, chunk) if self.keep_key else chunk

    def __iter__(self):
        for sample in self.datapipe:
            key = self.group_key_fn(sample)
            group = self.buffer_elements.setdefault(key, [])
            group.append(sample)
            self.curr_buffer_size += 1
            if len(group) == self.group_size:
                yield self._group(key, self._pop(key))
            if self.curr_buffer_size == self.max_buffer_size:
                largest, samples = self._remove_biggest_key()
                if samples is not None:
                    yield self._group(largest, samples)
        for key in tuple(self.buffer_elements):
            yield self._group(key, self._pop(key))

    def __getstate__(self):
        return self._hooked_state({**self.__dict__, "buffer_elements": {}, "curr_buffer_size": 0})
