"""One collection of many."""

from collections.abc import Sized
from typing import TypeVar

from mica.utils.data.datapipes._decorator import functional_datapipe
from mica.utils.data.datapipes.datapipe import MapDataPipe

__all__ = ["ConcaterMapDataPipe", "ZipperMapDataPipe"]

_T_co = TypeVar("_T_co", covariant=True)


def _check(datapipes):
    if not datapipes:
        raise ValueError("Expected at least one DataPipe, but got nothing")
    if not all(isinstance(each, MapDataPipe) for each in datapipes):
        raise TypeError("Expected all inputs to be `MapDataPipe`")
    if not all(isinstance(each, Sized) for each in datapipes):
        raise TypeError("Expected all inputs to be `Sized`")


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe):
    """Collections one after another."""

    def __init__(self, *datapipes):
        _check(datapipes)
        self.datapipes = datapipes

    def __getitem__(self, index):
        place = index
        for each in self.datapipes:
            if place < len(each):
                return each[place]
            place -= len(each)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self):
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class ZipperMapDataPipe(MapDataPipe[tuple[_T_co, ...]]):
    """Tuples of the samples of each collection."""

    def __init__(self, *datapipes):
        _check(datapipes)
        self.datapipes = datapipes

    def __getitem__(self, index):
        samples = []
        for each in self.datapipes:
            try:
                samples.append(each[index])
            except IndexError as error:
                raise IndexError(f"Index {index} is out of range for one of the input MapDataPipes {each}.") from error
        return tuple(samples)

    def __len__(self):
        return min(map(len, self.datapipes))
