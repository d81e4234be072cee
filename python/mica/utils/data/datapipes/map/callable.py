"""Functions of samples."""

from typing import TypeVar

from mica.utils.data.datapipes._decorator import functional_datapipe
from mica.utils.data.datapipes.datapipe import MapDataPipe
from mica.utils.data.datapipes.utils.common import _check_unpickable_fn

__all__ = ["MapperMapDataPipe", "default_fn"]

_T_co = TypeVar("_T_co", covariant=True)


def default_fn(data):
    """The sample itself."""
    return data


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe[_T_co]):
    """fn of each sample."""

    def __init__(self, datapipe, fn=default_fn):
        super().__init__()
        _check_unpickable_fn(fn)
        self.datapipe = datapipe
        self.fn = fn

    def __len__(self):
        return len(self.datapipe)

    def __getitem__(self, index):
        return self.fn(self.datapipe[index])
