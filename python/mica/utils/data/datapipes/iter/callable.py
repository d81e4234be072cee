"""Functions of samples."""

import functools
from typing import TypeVar

from mica.utils.data._utils.collate import default_collate
from mica.utils.data.datapipes._decorator import functional_datapipe
from mica.utils.data.datapipes.datapipe import IterDataPipe
from mica.utils.data.datapipes.iter._lengths import length_of
from mica.utils.data.datapipes.utils.common import _check_unpickable_fn, validate_input_col

__all__ = ["CollatorIterDataPipe", "MapperIterDataPipe"]

_T_co = TypeVar("_T_co", covariant=True)


def apply_to_columns(fn, data, columns):
    """fn of the sample, or of its members that `columns` names."""
    if columns is None:
        return fn(data)
    if isinstance(columns, (list, tuple)):
        return fn(*(data[each] for each in columns))
    return fn(data[columns])


@functional_datapipe("map")
class MapperIterDataPipe(IterDataPipe[_T_co]):
    """fn of each sample; with input_col, of some members of it, and the result takes a member's place."""

    def __init__(self, datapipe, fn, input_col=None, output_col=None):
        super().__init__()
        _check_unpickable_fn(fn)
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        validate_input_col(fn, input_col)
        self.datapipe = datapipe
        self.fn = fn
        self.input_col = input_col
        self.output_col = output_col

    def _apply_fn(self, data):
        result = apply_to_columns(self.fn, data, self.input_col)
        if self.input_col is None:
            return result
        is_tuple = isinstance(data, tuple)
        if is_tuple:
            data = list(data)
        if self.output_col == -1:
            data.append(result)
        elif self.output_col is not None:
            data[self.output_col] = result
        elif isinstance(self.input_col, (list, tuple)):
            first, *others = self.input_col
            data[first] = result
            for each in sorted(others, reverse=True):
                del data[each]
        else:
            data[self.input_col] = result
        return tuple(data) if is_tuple else data

    def __iter__(self):
        for data in self.datapipe:
            yield self._apply_fn(data)

    def __len__(self):
        return length_of(self, self.datapipe)[0]


def _collate_columns(conversion, batch):
    """A named tuple of a data frame's columns, each converted by the function of its name."""
    from collections import namedtuple

    if len(batch) > 1:
        raise RuntimeError(f"Only supports one DataFrame per batch, but the batch has {len(batch)}")
    frame = batch[0]
    columns = list(frame.columns)
    if not all(name in columns for name in conversion):
        raise RuntimeError(
            f"Conversion keys mismatch: the frame has the columns {columns}, and there are {list(conversion)}"
        )
    if not all(callable(each) for each in conversion.values()):
        raise RuntimeError("Collate (DF)DataPipe requires callable as dict values")
    if not all(name in conversion for name in columns):
        raise RuntimeError("unable to import default collation function from the TorchArrow")
    return namedtuple("CollateResult", map(str, columns))(*(conversion[name](frame[name]) for name in columns))


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Batches as tensors, by default_collate or by a function of one's own; by a dict, columns of data frames."""

    def __init__(self, datapipe, conversion=default_collate, collate_fn=None):
        if collate_fn is None:
            collate_fn = conversion if callable(conversion) else functools.partial(_collate_columns, conversion)
        super().__init__(datapipe, fn=collate_fn)
