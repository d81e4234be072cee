"""The DataLoader: batches of a dataset, in torch's order from the same seed, made here or by workers."""

import multiprocessing.context
import os
import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mica.utils.data._utils.collate import default_collate, default_convert
from mica.utils.data._utils.iterator import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _make_fetcher,  # noqa: F401 - workers that are spawned look for it here
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)
from mica.utils.data._utils.pipes import is_pipe, is_stream, wrapped
from mica.utils.data._utils.worker import get_worker_info
from mica.utils.data.dataset import Dataset, IterableDataset  # noqa: F401 - programs import Dataset from here
from mica.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")
_collate_fn_t = Callable[[list[_T]], Any]
_worker_init_fn_t = Callable[[int], None]

_FIXED = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}


class _InfiniteConstantSampler(Sampler):
    """The sampler of streams, which have no indices."""

    def __iter__(self):
        while True:
            yield None


class DataLoader(Generic[_T_co]):
    """Makes batches of a dataset.

    Args:
        dataset: has __getitem__ and __len__, or is a stream (IterableDataset)
        batch_size: how many samples a batch has; None gives single samples
        shuffle: whether the order is random, and new in each epoch
        sampler: gives the indices, in the place of shuffle
        batch_sampler: gives lists of indices, in the place of batch_size, shuffle, sampler and drop_last
        num_workers: how many processes make batches; 0 makes them in this one. What they send lies in shared memory
        collate_fn: makes a batch of a list of samples
        pin_memory: whether batches lie in memory that a GPU reads directly
        drop_last: whether a last batch that is shorter is left out
        timeout: seconds to wait for a batch of a worker; 0 waits for ever
        worker_init_fn: is called with its number in each worker
        multiprocessing_context: how processes are started: "fork", "spawn" or "forkserver"
        generator: the source of the order and of the workers' seeds
        prefetch_factor: how many batches each worker makes ahead
        persistent_workers: whether workers stay for the next epoch
        pin_memory_device: changes nothing: pinned memory serves every device
        in_order: whether batches of several workers come in the sampler's order
        worker_method: "thread" uses threads, which torch does not have: they share everything and cost nothing to start,
            and help where the dataset's code releases the interpreter lock

    Example::

        loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
        for inputs, targets in loader:
            train(inputs, targets)
    """

    __initialized = False

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor=None,
        persistent_workers=False,
        pin_memory_device="",
        in_order=True,
        worker_method="multiprocessing",
    ):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError(f"timeout option should be non-negative, but got {timeout}")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
                "multiprocessing, otherwise set prefetch_factor to None."
            )
        if num_workers > 0 and prefetch_factor is None:
            prefetch_factor = 2
        elif prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError(f"prefetch_factor option should be non-negative, but got {prefetch_factor}")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        if worker_method not in ("multiprocessing", "thread"):
            raise ValueError(f"worker_method should be 'multiprocessing' or 'thread', but got {worker_method!r}")

        self.dataset = wrapped(dataset, shuffle) if is_pipe(dataset) else dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.worker_method = worker_method
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self.generator = generator
        self.persistent_workers = persistent_workers

        self._dataset_kind = _DatasetKind.Iterable if isinstance(dataset, IterableDataset) else _DatasetKind.Map
        if self._dataset_kind == _DatasetKind.Iterable:
            given = {
                "shuffle": None if is_stream(dataset) else shuffle or None,
                "sampler": sampler,
                "batch_sampler": batch_sampler,
            }
            for name, value in given.items():
                if value is not None:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._dataset_kind == _DatasetKind.Iterable:
                sampler = _InfiniteConstantSampler()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.collate_fn = collate_fn or (default_collate if self._auto_collation else default_convert)
        self._IterableDataset_len_called = None
        self._iterator = None
        self.__initialized = True
        self.check_worker_number_rationality()

    @property
    def multiprocessing_context(self):
        return self.__multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context):
        if context is not None:
            if self.num_workers == 0:
                raise ValueError(
                    "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                    f"num_workers={self.num_workers}"
                )
            if isinstance(context, str):
                methods = multiprocessing.get_all_start_methods()
                if context not in methods:
                    raise ValueError(
                        f"multiprocessing_context option should specify a valid start method in {methods!r}, but got "
                        f"multiprocessing_context={context!r}"
                    )
                context = multiprocessing.get_context(context)
            if not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError(
                    "multiprocessing_context option should be a valid context object or a string specifying the start "
                    f"method, but got multiprocessing_context={context}"
                )
        self.__multiprocessing_context = context

    def __setattr__(self, name, value):
        if self.__initialized and name in _FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def _get_iterator(self):
        return _SingleProcessDataLoaderIter(self) if self.num_workers == 0 else _MultiProcessingDataLoaderIter(self)

    def __iter__(self) -> _BaseDataLoaderIter:
        if not self.persistent_workers:
            return self._get_iterator()
        if self._iterator is None or self._iterator._crew.stopped:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    def __len__(self):
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def check_worker_number_rationality(self):
        """Warn of more worker processes than there are processors."""
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if self.worker_method == "thread" or self.num_workers <= (processors or 0):
            return
        warnings.warn(
            f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number of worker "
            f"in current system is {processors}, which is smaller than what this DataLoader is going to create. Please be "
            "aware that excessive worker creation might get DataLoader running slow or even freeze, lower the worker number "
            "to avoid potential slowness/freeze if necessary.",
            stacklevel=3,
        )
