"""Checkpoints that many processes save and load together, in torch's own folder format."""

import importlib as _importlib

from mica.distributed.checkpoint.api import CheckpointException
from mica.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from mica.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from mica.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorStorageMetadata,
)
from mica.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from mica.distributed.checkpoint.state_dict_loader import load, load_state_dict
from mica.distributed.checkpoint.state_dict_saver import async_save, save, save_state_dict
from mica.distributed.checkpoint.storage import StorageReader, StorageWriter

__all__ = [
    "BytesStorageMetadata",
    "CheckpointException",
    "ChunkStorageMetadata",
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "FileSystemReader",
    "FileSystemWriter",
    "HuggingFaceStorageReader",
    "HuggingFaceStorageWriter",
    "LoadPlan",
    "LoadPlanner",
    "Metadata",
    "ReadItem",
    "SavePlan",
    "SavePlanner",
    "StorageReader",
    "StorageWriter",
    "TensorStorageMetadata",
    "WriteItem",
    "async_save",
    "load",
    "load_state_dict",
    "save",
    "save_state_dict",
]


def __getattr__(name):
    if name in ("HuggingFaceStorageReader", "HuggingFaceStorageWriter"):
        return getattr(_importlib.import_module("mica.distributed.checkpoint.hf_storage"), name)
    if name in ("format_utils", "state_dict", "planner_helpers", "staging", "stateful", "utils"):
        return _importlib.import_module(f"mica.distributed.checkpoint.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
