"""One stream of many."""

from typing import TypeVar

from mica.utils.data.datapipes._decorator import functional_datapipe
from mica.utils.data.datapipes.datapipe import IterDataPipe
from mica.utils.data.datapipes.iter._lengths import length_of
from mica.utils.data.datapipes.iter.splitting import (
    DemultiplexerIterDataPipe,
    ForkerIterDataPipe,
    _ChildDataPipe,  # noqa: F401 - torchdata imports these three from here
    _DemultiplexerIterDataPipe,  # noqa: F401
    _ForkerIterDataPipe,  # noqa: F401
)

__all__ = [
    "ConcaterIterDataPipe",
    "DemultiplexerIterDataPipe",
    "ForkerIterDataPipe",
    "MultiplexerIterDataPipe",
    "ZipperIterDataPipe",
]

_T_co = TypeVar("_T_co", covariant=True)


@functional_datapipe("concat")
class ConcaterIterDataPipe(IterDataPipe):
    """Streams one after another."""

    def __init__(self, *datapipes):
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        if not all(isinstance(each, IterDataPipe) for each in datapipes):
            raise TypeError("Expected all inputs to be `IterDataPipe`")
        self.datapipes = datapipes

    def __iter__(self):
        for each in self.datapipes:
            yield from each

    def __len__(self):
        return sum(length_of(self, *self.datapipes))


@functional_datapipe("mux")
class MultiplexerIterDataPipe(IterDataPipe):
    """A sample of each stream in turn, until one of them has ended: a round is given whole or not at all."""

    def __init__(self, *datapipes):
        self.datapipes = datapipes
        self.buffer = []

    def __iter__(self):
        iterators = [iter(each) for each in self.datapipes]
        for self.buffer in zip(*iterators, strict=False):
            yield from self.buffer

    def __len__(self):
        return min(length_of(self, *self.datapipes)) * len(self.datapipes)

    def reset(self):
        self.buffer = []

    def __getstate__(self):
        return self._hooked_state((self.datapipes, self._valid_iterator_id, self._number_of_samples_yielded))

    def __setstate__(self, state):
        self.datapipes, self._valid_iterator_id, self._number_of_samples_yielded = state
        self.buffer = []


@functional_datapipe("zip")
class ZipperIterDataPipe(IterDataPipe[tuple[_T_co]]):
    """Tuples of a sample of each stream, until one of them has ended."""

    def __init__(self, *datapipes):
        if not all(isinstance(each, IterDataPipe) for each in datapipes):
            raise TypeError("All inputs are required to be `IterDataPipe` for `ZipIterDataPipe`.")
        super().__init__()
        self.datapipes = datapipes

    def __iter__(self):
        yield from zip(*(iter(each) for each in self.datapipes), strict=False)

    def __len__(self):
        return min(length_of(self, *self.datapipes))
