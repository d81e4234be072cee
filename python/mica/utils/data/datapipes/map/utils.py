"""Samples of a sequence or a mapping."""

import copy
import warnings
from typing import TypeVar

from mica.utils.data.datapipes.datapipe import MapDataPipe

__all__ = ["SequenceWrapperMapDataPipe"]

_T = TypeVar("_T")


class SequenceWrapperMapDataPipe(MapDataPipe[_T]):
    """The members of a sequence or a mapping, of which it keeps a deep copy unless told otherwise."""

    def __init__(self, sequence, deepcopy=True):
        self.sequence = sequence
        if deepcopy:
            try:
                self.sequence = copy.deepcopy(sequence)
            except TypeError:
                warnings.warn(
                    "The input sequence can not be deepcopied, please be aware of in-place modification would affect "
                    "source data",
                    stacklevel=2,
                )

    def __getitem__(self, index):
        return self.sequence[index]

    def __len__(self):
        return len(self.sequence)
