"""Some of the samples."""

from typing import TypeVar

from mica.utils.data.datapipes._decorator import functional_datapipe
from mica.utils.data.datapipes.datapipe import IterDataPipe
from mica.utils.data.datapipes.iter.callable import apply_to_columns
from mica.utils.data.datapipes.utils.common import StreamWrapper, _check_unpickable_fn, validate_input_col

__all__ = ["FilterIterDataPipe"]

_T_co = TypeVar("_T_co", covariant=True)


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe[_T_co]):
    """The samples of which filter_fn is True; streams in the others are closed."""

    def __init__(self, datapipe, filter_fn, input_col=None):
        super().__init__()
        _check_unpickable_fn(filter_fn)
        validate_input_col(filter_fn, input_col)
        self.datapipe = datapipe
        self.filter_fn = filter_fn
        self.input_col = input_col

    def __iter__(self):
        for data in self.datapipe:
            keep = apply_to_columns(self.filter_fn, data, self.input_col)
            if not isinstance(keep, bool):
                raise ValueError("Boolean output is required for `filter_fn` of FilterIterDataPipe, got", type(keep))
            if keep:
                yield data
            else:
                StreamWrapper.close_streams(data)
