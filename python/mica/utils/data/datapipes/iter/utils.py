"""A stream of what any iterable gives."""

import copy
import warnings
from typing import TypeVar

from mica.utils.data.datapipes.datapipe import IterDataPipe
from mica.utils.data.datapipes.iter._lengths import length_of

__all__ = ["IterableWrapperIterDataPipe"]

_T = TypeVar("_T")


class IterableWrapperIterDataPipe(IterDataPipe[_T]):
    """The samples of an iterable, of which each iteration takes a deep copy unless told otherwise."""

    def __init__(self, iterable, deepcopy=True):
        self.iterable = iterable
        self.deepcopy = deepcopy

    def __iter__(self):
        source = self.iterable
        if self.deepcopy:
            try:
                source = copy.deepcopy(source)
            except TypeError:
                warnings.warn(
                    "The input iterable can not be deepcopied, please be aware of in-place modification would affect "
                    "source data.",
                    stacklevel=2,
                )
        yield from source

    def __len__(self):
        return length_of(self, self.iterable)[0]
