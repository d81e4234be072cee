"""What runs in a worker of a DataLoader: a process of its own, or a thread."""

import random
import sys
import threading
from dataclasses import dataclass
from typing import Any

from mica import _C
from mica._utils import ExceptionWrapper
from mica.utils.data._utils import pipes


@dataclass(frozen=True, slots=True)
class _RNG:
    """Sources of random numbers of a worker thread's own: the global ones are all threads'."""

    random_generator: random.Random
    torch_generator: Any
    numpy_generator: Any = None


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Which worker this is, of how many, with what seed and what copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: _RNG | None = None
    worker_method: str | None = "multiprocessing"


class _Current(threading.local):
    info = None
    pool = None  # segments of shared memory, in a process


_current = _Current()


def get_worker_info():
    """Information about the worker that runs this; None outside of workers."""
    return globals().get("_worker_info") or _current.info


def __getattr__(name):
    # Libraries with workers of their own set this global; get_worker_info then returns it.
    if name == "_worker_info":
        return _current.info
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


SMALLEST_SHARED = 32768  # bytes: a smaller tensor is copied through the socket


def shared_empty(size, dtype, device):
    """In a worker process, memory for a tensor that is to be sent; None where it goes another way."""
    pool = _current.pool
    if pool is None or device.type != "cpu":
        return None
    count = dtype.itemsize
    for each in size:
        count *= each
    if count < SMALLEST_SHARED:
        return None
    return _C._view_storage(pool.allocate(count), dtype, 0, (count // dtype.itemsize,), (1,)).view(size)


@dataclass(frozen=True)
class Job:
    """All that a worker has to know."""

    make_fetcher: Any
    dataset: Any
    base_seed: int
    init_fn: Any
    worker_id: int
    num_workers: int
    shared_seed: int | None = None  # the seed of a stream's shufflers
    process_place: tuple | None = None  # for a pipe: (processes, number of this one)


@dataclass(frozen=True)
class _IterableDatasetStopIteration:
    """In place of a batch: this worker's stream has ended."""

    worker_id: int


@dataclass(frozen=True)
class _ResumeIteration:
    """In place of a task: start over, a stream with this seed. And in place of a batch, as the answer."""

    seed: int | None = None


def _generate_state(base_seed, worker_id):
    """NumPy's seed for a worker: torch's, which mixes the numbers as numpy.random.SeedSequence does."""
    import numpy as np

    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return np.random.SeedSequence(entropy).generate_state(4).tolist()


def _seed_process(job):
    seed = job.base_seed + job.worker_id
    random.seed(seed)
    _C.default_generator.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(_generate_state(job.base_seed, job.worker_id))


def _thread_rng(job):
    seed = job.base_seed + job.worker_id
    numpy_generator = None
    if "numpy" in sys.modules:
        numpy_generator = sys.modules["numpy"].random.default_rng(_generate_state(job.base_seed, job.worker_id))
    return _RNG(random.Random(seed), _C.Generator().manual_seed(seed), numpy_generator)


def _prepare_pipe(job, seed):
    if seed is not None:
        pipes.seed_stream(job.dataset, seed)


def run(job, receive, send, *, in_thread):
    """Fetch the batches that are asked for, until there are no more requests."""
    where = f"in DataLoader worker {'thread' if in_thread else 'process'} {job.worker_id}"
    if not in_thread:
        _C.set_num_threads(1)
        _seed_process(job)
    _current.info = WorkerInfo(
        id=job.worker_id,
        num_workers=job.num_workers,
        seed=job.base_seed + job.worker_id,
        dataset=job.dataset,
        rng=_thread_rng(job) if in_thread else None,
        worker_method="thread" if in_thread else "multiprocessing",
    )
    failure = None
    try:
        _prepare_pipe(job, job.shared_seed)
        if job.process_place is not None:
            pipes.shard(job.dataset, job.process_place, job.worker_id, job.num_workers)
        if job.init_fn is not None:
            job.init_fn(job.worker_id)
        fetcher = job.make_fetcher(job.dataset)
    except Exception:
        failure = ExceptionWrapper(where=where)
    ended = False
    while (task := receive()) is not None:
        if isinstance(task, _ResumeIteration):
            ended = False
            try:
                _prepare_pipe(job, task.seed)
                fetcher = job.make_fetcher(job.dataset)
            except Exception:
                failure = ExceptionWrapper(where=where)
            send(None, task)
            continue
        number, index = task
        if ended:
            continue
        if failure is not None:
            send(number, failure)
            failure = None
            continue
        try:
            data = fetcher.fetch(index)
        except StopIteration as stop:
            if fetcher.ends:
                ended = True
                data = _IterableDatasetStopIteration(job.worker_id)
            else:
                # Raised unchanged, it would end the loop over the loader.
                data = ExceptionWrapper((RuntimeError, stop, stop.__traceback__), where)
        except Exception:
            data = ExceptionWrapper(where=where)
        send(number, data)
        del data
