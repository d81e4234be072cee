"""Many streams of one: children read from a main pipe, which keeps what one child has passed and another not yet."""

import copy as copies
import warnings
from collections import deque

from mica.utils.data.datapipes._decorator import functional_datapipe
from mica.utils.data.datapipes._hook_iterator import _SnapshotState
from mica.utils.data.datapipes.datapipe import IterDataPipe
from mica.utils.data.datapipes.utils.common import StreamWrapper, _check_unpickable_fn

__all__ = ["DemultiplexerIterDataPipe", "ForkerIterDataPipe"]


class _Container(IterDataPipe):
    """What children have in common: the source, its iterator, and which children are under way."""

    def __init__(self, datapipe, num_instances, buffer_size, name):
        self.main_datapipe = datapipe
        self.num_instances = num_instances
        self.buffer_size = buffer_size
        if buffer_size < 0:
            warnings.warn(
                f"Unlimited buffer size is set for `{name}`, please be aware of OOM at random places", stacklevel=4
            )
        self._start_over()

    def _start_over(self):
        self._datapipe_iterator = None
        self._source_ended = False
        self._child_stop = [True] * self.num_instances

    def reset(self):
        self._start_over()

    def _begin(self, instance_id):
        """Begin with the source when the first child of a generation does."""
        if self._datapipe_iterator is None and self._child_stop[instance_id] and not self._source_ended:
            self._datapipe_iterator = iter(self.main_datapipe)
            self._snapshot_state = _SnapshotState.Iterating
            self._child_stop = [False] * self.num_instances

    def _take(self):
        """The source's next sample; StopIteration at its end."""
        try:
            return next(self._datapipe_iterator)
        except StopIteration:
            self._source_ended = True
            self._datapipe_iterator = None
            raise

    def _end(self, instance_id):
        self._child_stop[instance_id] = True
        if all(self._child_stop):
            self._datapipe_iterator = None

    def is_every_instance_exhausted(self):
        return self._source_ended and all(self._child_stop)


def _same(x):
    return x


_COPIES = {None: _same, "shallow": copies.copy, "deep": copies.deepcopy}


class _ForkerIterDataPipe(_Container):
    """Keeps the samples from where the slowest child is to where the fastest is."""

    def __init__(self, datapipe, num_instances, buffer_size=1000, copy=None):
        if copy not in _COPIES:
            raise ValueError(f"Unknown copy method `{copy}` requested, choose one of None, `shallow` or `deep`.")
        self.copy_fn = _COPIES[copy]
        super().__init__(datapipe, num_instances, buffer_size, "fork")

    def _start_over(self):
        super()._start_over()
        self.buffer = deque()
        self._first = 0  # the number of the sample at the front of the buffer
        self.child_pointers = [0] * self.num_instances  # the number of the sample that each child takes next

    def __len__(self):
        return len(self.main_datapipe)

    def get_length_by_instance(self, instance_id):
        return len(self.main_datapipe)

    def get_next_element_by_instance(self, instance_id):
        self._begin(instance_id)
        try:
            while not self._child_stop[instance_id]:
                place = self.child_pointers[instance_id] - self._first
                if place == len(self.buffer):
                    if self._source_ended:
                        break
                    try:
                        self.buffer.append(self._take())
                    except StopIteration:
                        break
                sample = self.buffer[place]
                self.child_pointers[instance_id] += 1
                while self._first < min(self.child_pointers):
                    self.buffer.popleft()
                    self._first += 1
                if 0 <= self.buffer_size < len(self.buffer):
                    raise BufferError(
                        f"ForkerIterDataPipe buffer overflow,buffer size {self.buffer_size} is insufficient."
                    )
                yield self.copy_fn(sample)
        finally:
            self._end(instance_id)
            if all(self._child_stop):
                StreamWrapper.close_streams(list(self.buffer))
                self._first += len(self.buffer)
                self.buffer.clear()

    def __getstate__(self):
        numbers = (self._valid_iterator_id, self._number_of_samples_yielded)
        return self._hooked_state((self.main_datapipe, self.num_instances, self.buffer_size, self.copy_fn, *numbers))

    def __setstate__(self, state):
        self.main_datapipe, self.num_instances, self.buffer_size, self.copy_fn, *numbers = state
        self._valid_iterator_id, self._number_of_samples_yielded = numbers
        self._start_over()


class _DemultiplexerIterDataPipe(_Container):
    """Keeps for each child the samples that another child came upon."""

    def __init__(self, datapipe, num_instances, classifier_fn, drop_none, buffer_size):
        self.classifier_fn = classifier_fn
        self.drop_none = drop_none
        super().__init__(datapipe, num_instances, buffer_size, "demux")

    def _start_over(self):
        super()._start_over()
        self.child_buffers = [deque() for _ in range(self.num_instances)]

    def get_length_by_instance(self, instance_id):
        raise TypeError

    def _next_for(self, instance_id):
        while True:
            sample = self._take()
            which = self.classifier_fn(sample)
            if which is None and self.drop_none:
                StreamWrapper.close_streams(sample)
                continue
            if which is None or not 0 <= which < self.num_instances:
                raise ValueError(
                    f"Output of the classification fn should be between 0 and {self.num_instances - 1}. {which} is "
                    "returned."
                )
            if which == instance_id:
                return sample
            self.child_buffers[which].append(sample)
            if 0 <= self.buffer_size < sum(map(len, self.child_buffers)):
                raise BufferError(
                    f"DemultiplexerIterDataPipe buffer overflow, buffer size {self.buffer_size} is insufficient."
                )

    def get_next_element_by_instance(self, instance_id):
        self._begin(instance_id)
        own = self.child_buffers[instance_id]
        try:
            while not self._child_stop[instance_id]:
                if own:
                    yield own.popleft()
                elif self._source_ended:
                    break
                else:
                    try:
                        sample = self._next_for(instance_id)
                    except StopIteration:
                        break
                    yield sample
        finally:
            self._end(instance_id)
            StreamWrapper.close_streams(list(own))
            own.clear()

    def __getstate__(self):
        numbers = (self._valid_iterator_id, self._number_of_samples_yielded)
        settings = (self.main_datapipe, self.num_instances, self.buffer_size, self.classifier_fn, self.drop_none)
        return self._hooked_state((*settings, *numbers))

    def __setstate__(self, state):
        self.main_datapipe, self.num_instances, self.buffer_size, self.classifier_fn, self.drop_none, *numbers = state
        self._valid_iterator_id, self._number_of_samples_yielded = numbers
        self._start_over()


class _ChildDataPipe(IterDataPipe):
    """One of the streams of a container.

    All children have iterators of one generation: a second one of the same child begins a new generation, for which
    the container starts over, and the iterators of the generation before are no longer valid.
    """

    _is_child_datapipe = True

    def __init__(self, main_datapipe, instance_id):
        self.main_datapipe = main_datapipe
        self.instance_id = instance_id

    def __iter__(self):
        return self.main_datapipe.get_next_element_by_instance(self.instance_id)

    def __len__(self):
        return self.main_datapipe.get_length_by_instance(self.instance_id)

    def _set_main_datapipe_valid_iterator_id(self):
        main = self.main_datapipe
        if main._valid_iterator_id is None:
            main._valid_iterator_id = 0
        elif main._valid_iterator_id == self._valid_iterator_id:
            main._valid_iterator_id += 1
            if not main.is_every_instance_exhausted():
                warnings.warn(
                    "Some child DataPipes are not exhausted when __iter__ is called. We are resetting the buffer and "
                    "each child DataPipe will read from the start again.",
                    stacklevel=4,
                )
            main.reset()
        self._valid_iterator_id = main._valid_iterator_id
        return self._valid_iterator_id

    def _check_valid_iterator_id(self, iterator_id):
        return iterator_id == self._valid_iterator_id == self.main_datapipe._valid_iterator_id


def _check_count(num_instances):
    if num_instances < 1:
        raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")


@functional_datapipe("fork")
class ForkerIterDataPipe(IterDataPipe):
    """A list of streams that each give every sample; no one may be more than buffer_size ahead of another."""

    def __new__(cls, datapipe, num_instances, buffer_size=1000, copy=None):
        _check_count(num_instances)
        if num_instances == 1:
            return datapipe
        container = _ForkerIterDataPipe(datapipe, num_instances, buffer_size, copy)
        return [_ChildDataPipe(container, each) for each in range(num_instances)]


@functional_datapipe("demux")
class DemultiplexerIterDataPipe(IterDataPipe):
    """A list of streams: each sample goes to the one whose number classifier_fn gives."""

    def __new__(cls, datapipe, num_instances, classifier_fn, drop_none=False, buffer_size=1000):
        _check_count(num_instances)
        _check_unpickable_fn(classifier_fn)
        container = _DemultiplexerIterDataPipe(datapipe, num_instances, classifier_fn, drop_none, buffer_size)
        return [_ChildDataPipe(container, each) for each in range(num_instances)]
