"""Streams."""

from mica.utils.data.datapipes.iter.callable import CollatorIterDataPipe as Collator
from mica.utils.data.datapipes.iter.callable import MapperIterDataPipe as Mapper
from mica.utils.data.datapipes.iter.combinatorics import SamplerIterDataPipe as Sampler
from mica.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe as Shuffler
from mica.utils.data.datapipes.iter.combining import ConcaterIterDataPipe as Concater
from mica.utils.data.datapipes.iter.combining import MultiplexerIterDataPipe as Multiplexer
from mica.utils.data.datapipes.iter.combining import ZipperIterDataPipe as Zipper
from mica.utils.data.datapipes.iter.filelister import FileListerIterDataPipe as FileLister
from mica.utils.data.datapipes.iter.fileopener import FileOpenerIterDataPipe as FileOpener
from mica.utils.data.datapipes.iter.grouping import BatcherIterDataPipe as Batcher
from mica.utils.data.datapipes.iter.grouping import GrouperIterDataPipe as Grouper
from mica.utils.data.datapipes.iter.grouping import UnBatcherIterDataPipe as UnBatcher
from mica.utils.data.datapipes.iter.routeddecoder import RoutedDecoderIterDataPipe as RoutedDecoder
from mica.utils.data.datapipes.iter.selecting import FilterIterDataPipe as Filter
from mica.utils.data.datapipes.iter.sharding import ShardingFilterIterDataPipe as ShardingFilter
from mica.utils.data.datapipes.iter.splitting import DemultiplexerIterDataPipe as Demultiplexer
from mica.utils.data.datapipes.iter.splitting import ForkerIterDataPipe as Forker
from mica.utils.data.datapipes.iter.streamreader import StreamReaderIterDataPipe as StreamReader
from mica.utils.data.datapipes.iter.utils import IterableWrapperIterDataPipe as IterableWrapper

__all__ = [
    "Batcher",
    "Collator",
    "Concater",
    "Demultiplexer",
    "FileLister",
    "FileOpener",
    "Filter",
    "Forker",
    "Grouper",
    "IterableWrapper",
    "Mapper",
    "Multiplexer",
    "RoutedDecoder",
    "Sampler",
    "ShardingFilter",
    "Shuffler",
    "StreamReader",
    "UnBatcher",
    "Zipper",
]
