"""One iterator at a time: what the metaclass of IterDataPipe puts around a pipe's __iter__, __next__ and reset.

A pipe may hold buffers that two iterators would spoil for each other. So every iterator has a number, the pipe knows
the number of the newest, and an older one raises an error when it is asked for the next sample.
"""

import functools
import inspect
from enum import Enum

from mica import _C


class _SnapshotState(Enum):
    """Whether a pipe was put at a place within its samples, which the next iteration starts from without a reset."""

    NotStarted = 0
    Restored = 1
    Iterating = 2


def _argument_text(pipe):
    names = inspect.signature(type(pipe)).parameters
    shown = []
    for name in sorted(names):
        try:
            value = getattr(pipe, name)
        except AttributeError:
            continue
        shown.append(f"{name}={value.__name__ if inspect.isfunction(value) else repr(value)}")
    return ", ".join(shown)


def _text(pipe):
    return f"{type(pipe).__name__}({_argument_text(pipe)})"


_FEEDBACK = (
    "\nFor feedback regarding this single iterator per IterDataPipe constraint, feel free to comment on this issue: "
    "https://github.com/pytorch/data/issues/45."
)


def _check_iterator_valid(pipe, number):
    if getattr(pipe, "_is_child_datapipe", False) is True:
        if not pipe._check_valid_iterator_id(number):
            raise RuntimeError(
                "This iterator has been invalidated, because a new iterator has been created from one of the "
                f"ChildDataPipes of {_text(pipe.main_datapipe)}.{_FEEDBACK}"
            )
    elif pipe._valid_iterator_id != number:
        raise RuntimeError(
            "This iterator has been invalidated because another iterator has been created from the same IterDataPipe: "
            f"{_text(pipe)}\nThis may be caused by multiple references to the same IterDataPipe. We recommend using "
            f"`.fork()` if that is necessary.{_FEEDBACK}"
        )


def _new_iterator_number(pipe):
    """Make a new iterator the valid one, and reset the pipe."""
    if getattr(pipe, "_is_child_datapipe", False) is True:
        return pipe._set_main_datapipe_valid_iterator_id()
    pipe._valid_iterator_id = 0 if pipe._valid_iterator_id is None else pipe._valid_iterator_id + 1
    pipe.reset()
    return pipe._valid_iterator_id


def _take_forwarded(pipe):
    """The iterator that a restored snapshot has left at its place; None without one."""
    iterator, pipe._fast_forward_iterator = pipe._fast_forward_iterator, None
    return iterator


def _named(pipe, function, *args):
    """Call the function as a range of the profiler that is named for the pipe."""
    from mica.autograd.profiler import record_function

    name = _text(pipe).replace("IterDataPipe", "").replace("MapDataPipe", "")
    with record_function(name):
        return function(*args)


def _say_where(error, pipe):
    """Add to an exception's message which pipe it came from, once."""
    where = f"This exception is thrown by __iter__ of {_text(pipe)}"
    if not error.args or not isinstance(error.args[0], str):
        error.args = (f"\n{where}",)
    elif "thrown by __iter__ of" not in error.args[0] and "single iterator per IterDataPipe" not in error.args[0]:
        error.args = (f"{error.args[0]}\n{where}", *error.args[1:])


class _CountingIterator:
    """An iterator that a pipe has made, with its number."""

    def __init__(self, iterator, pipe, number, counts):
        self.iterator = iterator
        self.datapipe = pipe
        self.iterator_id = number
        self._counts = counts  # False where the pipe's own __next__ counts

    def __iter__(self):
        return self

    def __next__(self):
        _check_iterator_valid(self.datapipe, self.iterator_id)
        recorded = _C._profiler_recording()
        sample = _named(self.datapipe, next, self.iterator) if recorded else next(self.iterator)
        if self._counts:
            self.datapipe._number_of_samples_yielded += 1
        return sample

    def __getattr__(self, name):
        return getattr(self.iterator, name)


def _around_generator(function):
    @functools.wraps(function)
    def iterate(pipe, *args, **kwargs):
        forwarded = _take_forwarded(pipe)
        if forwarded is not None:
            pipe._snapshot_state = _SnapshotState.Iterating
            yield from forwarded
            return
        generator = function(pipe, *args, **kwargs)
        number = _new_iterator_number(pipe)
        send, request = generator.send, None
        recorded = _C._profiler_recording()
        is_child = getattr(pipe, "_is_child_datapipe", False) is True
        try:
            while True:
                try:
                    sample = _named(pipe, send, request) if recorded else send(request)
                except StopIteration:
                    return
                pipe._number_of_samples_yielded += 1
                request = yield sample
                if is_child or pipe._valid_iterator_id != number:
                    _check_iterator_valid(pipe, number)
        except Exception as error:
            _say_where(error, pipe)
            raise
        finally:
            generator.close()

    return iterate


def _around_iter(function, has_next):
    @functools.wraps(function)
    def iterate(pipe, *args, **kwargs):
        iterator = function(pipe, *args, **kwargs)
        pipe._snapshot_state = _SnapshotState.Iterating
        forwarded = _take_forwarded(pipe)
        if forwarded is not None:
            return forwarded
        number = _new_iterator_number(pipe)
        return _CountingIterator(iterator, pipe, number, counts=not (iterator is pipe and has_next))

    return iterate


def _around_next(function):
    @functools.wraps(function)
    def take(pipe, *args, **kwargs):
        if _C._profiler_recording():
            sample = _named(pipe, functools.partial(function, pipe, *args, **kwargs))
        else:
            sample = function(pipe, *args, **kwargs)
        pipe._number_of_samples_yielded += 1
        return sample

    return take


def hook_iterator(namespace):
    """Put the checks around the methods of a class that is being made."""
    function = namespace["__iter__"]
    if inspect.isgeneratorfunction(function):
        namespace["__iter__"] = _around_generator(function)
        return
    has_next = "__next__" in namespace
    if has_next:
        namespace["__next__"] = _around_next(namespace["__next__"])
    namespace["__iter__"] = _around_iter(function, has_next)


def hook_reset(function):
    """A reset that leaves a pipe alone which was just put at a place within its samples."""

    @functools.wraps(function)
    def reset(pipe, *args, **kwargs):
        if pipe._snapshot_state is not _SnapshotState.Restored:
            pipe._number_of_samples_yielded = 0
            pipe._fast_forward_iterator = None
            function(pipe, *args, **kwargs)
        pipe._snapshot_state = _SnapshotState.Iterating

    return reset
