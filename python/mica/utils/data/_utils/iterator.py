"""Iterators over a DataLoader: in this process, or with workers."""

import copy
import functools
import itertools
import warnings
import weakref

from mica import _C
from mica._utils import ExceptionWrapper
from mica.utils.data._utils import crew, fetch, pipes, worker
from mica.utils.data._utils.pin_memory import pin_memory
from mica.utils.data.sampler import random_seed


class _DatasetKind:
    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last):
        made = fetch._MapDatasetFetcher if kind == _DatasetKind.Map else fetch._IterableDatasetFetcher
        return made(dataset, auto_collation, collate_fn, drop_last)


def _make_fetcher(kind, auto_collation, collate_fn, drop_last, dataset):
    return _DatasetKind.create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last)


class _BaseDataLoaderIter:
    def __init__(self, loader):
        self._dataset = loader.dataset
        self._shared_seed = None
        self._seed_stream(loader)
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._timeout = loader.timeout
        self._pin_memory = loader.pin_memory and _C._accelerator() is not None
        if loader.pin_memory and not self._pin_memory:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
                stacklevel=4,
            )
        self._make_fetcher = functools.partial(
            _make_fetcher, loader._dataset_kind, loader._auto_collation, loader.collate_fn, loader.drop_last
        )
        # In this order, because a sampler may draw from the stream that the seed comes from.
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = random_seed(loader.generator)
        self._num_yielded = 0

    def __iter__(self):
        return self

    def _seed_stream(self, loader):
        if pipes.is_stream(self._dataset):
            self._shared_seed = pipes.shared_seed(loader.generator)
            pipes.seed_stream(self._dataset, self._shared_seed)

    def _reset(self, loader):
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._seed_stream(loader)

    def _next_index(self):
        return next(self._sampler_iter)

    def __next__(self):
        data = self._next_data()
        self._num_yielded += 1
        promised = self._IterableDataset_len_called
        if promised is not None and self._num_yielded > promised and self._dataset_kind == _DatasetKind.Iterable:
            self._warn_of_length(promised)
        return data

    def _warn_of_length(self, promised):
        message = (
            f"Length of IterableDataset {self._dataset} was reported to be {promised}(when accessing len(dataloader)), but "
            f"{self._num_yielded} samples have been fetched. "
        )
        if self._num_workers > 0:
            message += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset "
                "replica at each worker: get_worker_info() tells which part is its own."
            )
        warnings.warn(message, stacklevel=3)

    def __len__(self):
        return len(self._index_sampler)

    def __getstate__(self):
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader):
        super().__init__(loader)
        if self._timeout != 0:
            raise AssertionError("timeout is not supported without workers: nobody could end what takes too long")
        if pipes.is_pipe(self._dataset):
            pipes.shard(self._dataset, pipes.process_place())
        self._dataset_fetcher = self._make_fetcher(self._dataset)

    def _next_data(self):
        data = self._dataset_fetcher.fetch(self._next_index())
        return pin_memory(data) if self._pin_memory else data


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Keeps prefetch_factor tasks per worker under way and returns the results in the order of the tasks."""

    def __init__(self, loader):
        super().__init__(loader)
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        self._persistent_workers = loader.persistent_workers
        if self._prefetch_factor <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 with workers")
        jobs = [self._job(loader, number) for number in range(self._num_workers)]
        if loader.worker_method == "thread":
            self._crew = crew.ThreadCrew(jobs)
        else:
            self._crew = crew.ProcessCrew(_context(loader), jobs)
            self._workers = [each.process for each in self._crew.workers]
        self._shutdown_workers = weakref.finalize(self, self._crew.stop)
        super()._reset(loader)
        self._start()

    def _job(self, loader, number):
        dataset, place = self._dataset, None
        if pipes.is_pipe(dataset):
            place = pipes.process_place()
            if loader.worker_method == "thread":  # a stream has one iterator at a time
                dataset = copy.deepcopy(dataset)
        return worker.Job(
            self._make_fetcher,
            dataset,
            self._base_seed,
            loader.worker_init_fn,
            number,
            self._num_workers,
            self._shared_seed,
            place,
        )

    def _start(self):
        self._sent = 0  # tasks that were sent
        self._wanted = 0  # the number of the task whose result comes next
        self._worker_of = {}  # the worker of each task whose result has not been returned
        self._results = {}  # results that came before their turn
        self._active = [True] * self._num_workers
        self._load = [0] * self._num_workers
        self._turns = itertools.cycle(range(self._num_workers))
        for _ in range(self._prefetch_factor * self._num_workers):
            self._assign()

    def _reset(self, loader):
        """Start over with the same workers."""
        super()._reset(loader)
        resume = worker._ResumeIteration(self._shared_seed)
        for number in range(self._num_workers):
            self._crew.send(number, resume)
        waiting = self._num_workers
        while waiting:  # results before this one belong to the iteration that was left
            _, data = self._receive()
            waiting -= isinstance(data, worker._ResumeIteration)
        self._start()

    def _assign(self):
        """Give the next indices to the worker whose turn it is."""
        try:
            index = self._next_index()
        except StopIteration:
            return
        most = self._prefetch_factor * self._num_workers
        for _ in range(self._num_workers):
            number = next(self._turns)
            if self._active[number] and (self._in_order or self._load[number] < most // sum(self._active)):
                break
        else:
            return
        self._crew.send(number, (self._sent, index))
        self._worker_of[self._sent] = number
        self._load[number] += 1
        self._sent += 1

    def _receive(self):
        result = self._crew.receive(self._timeout or None)
        if result is None:
            self._shutdown_workers.detach()
            self._crew.stop(patience=0.2)
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        return result

    def _next_data(self):
        while True:
            # Tasks of a worker whose stream has ended give no results.
            while self._wanted < self._sent and not self._is_expected(self._wanted):
                self._worker_of.pop(self._wanted, None)
                self._wanted += 1
            if self._wanted == self._sent:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            if self._wanted in self._results:
                return self._deliver(self._wanted, self._results.pop(self._wanted))
            number, data = self._receive()
            if isinstance(data, worker._IterableDatasetStopIteration):
                self._active[data.worker_id] = False
                if not self._persistent_workers:
                    self._crew.dismiss(data.worker_id)
                self._assign()
            elif number == self._wanted or not self._in_order:
                return self._deliver(number, data)
            else:
                self._results[number] = data

    def _is_expected(self, number):
        return number in self._results or (number in self._worker_of and self._active[self._worker_of[number]])

    def _deliver(self, number, data):
        self._load[self._worker_of.pop(number)] -= 1
        if number == self._wanted:
            self._wanted += 1
        self._assign()
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return pin_memory(data) if self._pin_memory else data


def _context(loader):
    import mica.multiprocessing

    return loader.multiprocessing_context or mica.multiprocessing
