"""Checkpoints as folders of safetensors files, as models are published: `model-00001-of-00003.safetensors` and an index."""

import dataclasses
import json
import os
import warnings

import mica
from mica._checkpoints.safetensors import DTYPES, load_safetensors, read_header, shape_of, write_safetensors
from mica.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, _done
from mica.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from mica.distributed.checkpoint.planner import WriteItemType
from mica.distributed.checkpoint.storage import WriteResult
from mica.distributed.checkpoint.utils import narrow_tensor_by_index

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]

SUFFIX, INDEX_FILE, SHARDED_FOLDER = ".safetensors", "model.safetensors.index.json", "sharded"
# Where the pieces of tensors begin is in the header of a file, by this name.
OFFSETS = "DCP_SHARDING_INFO"


@dataclasses.dataclass
class _HFStorageInfo:
    """A tensor of a safetensors file."""

    relative_path: str
    shape: mica.Size
    dtype: mica.dtype


def _file_name(number, count, shard=None):
    name = f"model-{number:05d}-of-{count:05d}{SUFFIX}"
    return name if shard is None else f"shard-{shard:05d}-{name}"


def _write_index(folder, weight_map, total):
    with open(os.path.join(folder, INDEX_FILE), "w") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, file, indent=2)


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes tensors to safetensors files. What is no tensor is left out, with a warning.

    Args:
        path: the folder
        fqn_to_index_mapping: the number of the file of each tensor, from 1; without it there is one file
        thread_count: taken, without effect
        save_distributed: each rank writes its pieces to files of its own, without an index; otherwise every tensor is
            whole, and one rank writes it
        enable_consolidation: the files of the ranks go to the folder `sharded`, and one process joins them at the end
        thread_count_consolidation: taken, without effect
    """

    def __init__(self, path, fqn_to_index_mapping=None, thread_count=1, save_distributed=False,
                 enable_consolidation=False, thread_count_consolidation=1):  # fmt: skip
        super().__init__(path, thread_count=thread_count)
        self.fqn_to_index_mapping, self.save_distributed = fqn_to_index_mapping, save_distributed
        self.enable_consolidation = enable_consolidation
        self.consolidated_output_path = None
        if enable_consolidation:
            self.consolidated_output_path = str(self.path)
            self.path = self.fs.concat_path(self.path, SHARDED_FOLDER)

    def prepare_global_plan(self, plans):
        """The plans, with the number of each rank's files."""
        if not self.save_distributed:
            self._refuse_pieces(plans)
        made = []
        for i, plan in enumerate(plans, 1):
            data = {"fqn_to_file_index": self.fqn_to_index_mapping, "shard_index": i if self.save_distributed else None}
            made.append(dataclasses.replace(plan, storage_data=data))
        return made

    def _refuse_pieces(self, plans):
        """Raise ValueError unless one rank writes whole tensors: files of two ranks would have the same name."""
        items = [[each for each in plan.items if each.type != WriteItemType.BYTE_IO] for plan in plans]
        pieces = [
            each.index.fqn for own in items for each in own if each.tensor_data.chunk.sizes != each.tensor_data.size
        ]
        if pieces or sum(map(bool, items)) > 1:
            raise ValueError(
                "HuggingFaceStorageWriter: several ranks would write tensors, or parts of them: pass save_distributed=True, or "
                "save whole tensors on one rank with no_dist=True"
            )

    def write_data(self, plan, planner):
        """Write this rank's tensors."""
        numbers, shard = plan.storage_data["fqn_to_file_index"], plan.storage_data["shard_index"]
        count, files = max(numbers.values()) if numbers else 1, {}
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                warnings.warn(f"{item.index.fqn} is no tensor: safetensors files do not hold it", stacklevel=2)
                continue
            if numbers is not None and item.index.fqn not in numbers:
                raise KeyError(item.index.fqn)
            files.setdefault(numbers[item.index.fqn] if numbers else 1, []).append(item)
        written = []
        for number, items in files.items():
            written += self._write_tensors(_file_name(number, count, shard), items, planner)
        return _done(written)

    def _write_tensors(self, name, items, planner):
        tensors, offsets, results = {}, {}, []
        for item in items:
            fqn = item.index.fqn
            if fqn in tensors:
                raise NotImplementedError(f"{fqn} has several pieces on one rank, and a safetensors file holds one")
            tensors[fqn] = planner.resolve_data(item).detach().cpu().contiguous()
            offsets[fqn] = {"saved_offsets": list(item.tensor_data.chunk.offsets)}
            results.append(WriteResult(item.index, tensors[fqn].nbytes, name))
        notes = {"format": "pt", "DCP_VERSION": "1.0", OFFSETS: json.dumps(offsets)}
        write_safetensors(self.fs.concat_path(self.path, name), tensors, notes)
        return results

    def finish(self, metadata, results):
        """Write the index, or join the files of the ranks."""
        if self.enable_consolidation:
            self._join()
        elif not self.save_distributed:
            every = [each for written in results for each in written]
            weight_map = {each.index.fqn: each.storage_data for each in every}
            _write_index(self.path, weight_map, sum(each.size_in_bytes for each in every))

    def _join(self):
        """Whole tensors of the pieces of all ranks, in the files that the mapping says."""
        reader = HuggingFaceStorageReader(self.path)
        known = reader.read_metadata()
        numbers = self.fqn_to_index_mapping or dict.fromkeys(known.state_dict_metadata, 1)
        count, weight_map, total = max(numbers.values(), default=1), {}, 0
        for number in sorted(set(numbers.values())):
            tensors = {}
            for fqn, described in known.state_dict_metadata.items():
                if numbers[fqn] == number:
                    tensors[fqn] = reader.whole(fqn, described, known)
                    weight_map[fqn] = _file_name(number, count)
                    total += tensors[fqn].nbytes
            write_safetensors(os.path.join(self.consolidated_output_path, _file_name(number, count)), tensors)
        _write_index(self.consolidated_output_path, weight_map, total)

    @property
    def metadata_path(self):
        """The name of the index."""
        return INDEX_FILE


class HuggingFaceStorageReader(FileSystemReader):
    """Reads the tensors of a folder of safetensors files: those of published models, and those that a writer left.

    Args:
        path: the folder
        thread_count: taken, without effect: what is needed of a file is read from the disk when it is copied
    """

    def __init__(self, path, thread_count=1):
        super().__init__(path)
        self.thread_count = thread_count

    def read_metadata(self, *args, **kwargs):
        """What the headers of all files say."""
        sizes, chunks, kinds, places = {}, {}, {}, {}
        for name in sorted(os.listdir(self.path)):
            if not name.endswith(SUFFIX):
                continue
            path = str(self.fs.concat_path(self.path, name))
            header = read_header(path)
            notes = json.loads(header.pop("__metadata__", {}).get(OFFSETS, "{}"))
            for fqn, entry in header.items():
                shape = mica.Size(shape_of(entry))
                begin = mica.Size(notes.get(fqn, {}).get("saved_offsets", [0] * len(shape)))
                kinds[fqn] = DTYPES[entry["dtype"]]
                chunks.setdefault(fqn, []).append(ChunkStorageMetadata(begin, shape))
                ends = [first + many for first, many in zip(begin, shape, strict=True)]
                sizes[fqn] = [max(pair) for pair in zip(sizes.get(fqn, ends), ends, strict=True)]
                places[MetadataIndex(fqn, begin)] = _HFStorageInfo(path, shape, kinds[fqn])
        found = {
            fqn: TensorStorageMetadata(TensorProperties(dtype=kinds[fqn]), mica.Size(size), chunks[fqn])
            for fqn, size in sizes.items()
        }
        return Metadata(found, storage_data=places, storage_meta=StorageMeta(load_id=self.load_id))

    def read_data(self, plan, planner):
        """Copy what a plan asks for into its tensors."""
        by_file = {}
        for item in plan.items:
            by_file.setdefault(self.storage_data[item.storage_index].relative_path, []).append(item)
        for path, items in by_file.items():
            tensors = load_safetensors(path, mica.device("cpu"))
            for item in items:
                source = self._piece(tensors, item)
                target = planner.resolve_tensor(item).detach()
                if target.size() != source.size():
                    raise AssertionError(f"req {item.storage_index} mismatch sizes {target.size()} vs {source.size()}")
                target.copy_(source)
                planner.commit_tensor(item, target)
        return _done(None)

    def _piece(self, tensors, item):
        """The part of a file's tensor that an item asks for."""
        return narrow_tensor_by_index(tensors[item.storage_index.fqn], item.storage_offsets, item.lengths)

    def whole(self, fqn, described, metadata):
        """A tensor, put together from its pieces."""
        result = mica.empty(described.size, dtype=described.properties.dtype)
        for chunk in described.chunks:
            path = metadata.storage_data[MetadataIndex(fqn, chunk.offsets)].relative_path
            part = narrow_tensor_by_index(result, chunk.offsets, chunk.sizes)
            part.copy_(load_safetensors(path, mica.device("cpu"))[fqn])
        return result
