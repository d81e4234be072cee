"""Collections by index."""

from mica.utils.data.datapipes.map.callable import MapperMapDataPipe as Mapper
from mica.utils.data.datapipes.map.combinatorics import ShufflerIterDataPipe as Shuffler
from mica.utils.data.datapipes.map.combining import ConcaterMapDataPipe as Concater
from mica.utils.data.datapipes.map.combining import ZipperMapDataPipe as Zipper
from mica.utils.data.datapipes.map.grouping import BatcherMapDataPipe as Batcher
from mica.utils.data.datapipes.map.utils import SequenceWrapperMapDataPipe as SequenceWrapper

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]
