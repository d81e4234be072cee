"""Between folders of checkpoints and files of torch.save.

usage: python -m torch.distributed.checkpoint.format_utils torch_to_dcp | dcp_to_torch SOURCE TARGET
"""

import os
import sys

import mica
from mica.distributed.checkpoint._nested_dict import flatten_state_dict
from mica.distributed.checkpoint.default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from mica.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, _done
from mica.distributed.checkpoint.metadata import Metadata, TensorProperties, TensorStorageMetadata
from mica.distributed.checkpoint.planner import LoadItemType
from mica.distributed.checkpoint.planner_helpers import _create_chunk_list
from mica.distributed.checkpoint.state_dict_loader import _load_state_dict
from mica.distributed.checkpoint.state_dict_saver import _save_state_dict
from mica.distributed.checkpoint.storage import StorageReader
from mica.distributed.checkpoint.utils import narrow_tensor_by_index

__all__ = ["BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner", "dcp_to_torch_save", "torch_save_to_dcp"]

_TENSORS_ONLY = "Non-tensor value identified at {}. At this time {} only supports loading Tensors."


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a file of torch.save on one rank, which sends every tensor to the others. With DynamicMetaLoadPlanner."""

    def __init__(self, checkpoint_id=None, coordinator_rank=0):
        self.checkpoint_id, self.coordinator_rank = checkpoint_id, coordinator_rank

    def read_metadata(self):
        """Returns no metadata: the planner makes them from the dictionary that is loaded into."""
        return Metadata(state_dict_metadata={})

    def read_data(self, plan, planner):
        from mica import distributed as dist

        saved = None
        if self.is_coordinator:
            saved = mica.load(self.checkpoint_id, map_location="cpu", weights_only=False)
            if planner.flatten_state_dict:
                saved, _ = flatten_state_dict(saved)
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                raise RuntimeError(_TENSORS_ONLY.format(name, type(self).__name__))
            tensor = saved[name] if self.is_coordinator else mica.empty_like(planner.state_dict[name])
            if dist.is_initialized():
                dist.broadcast(tensor, src=self.coordinator_rank)
            target = planner.resolve_tensor(item).detach()
            target.copy_(narrow_tensor_by_index(tensor, item.storage_offsets, item.lengths))
            planner.commit_tensor(item, target)
        return _done(None)

    def set_up_storage_reader(self, metadata, is_coordinator):
        self.is_coordinator = is_coordinator
        assert self.checkpoint_id is not None, "checkpoint_id must be set before setting up storage reader"

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, global_plan):
        return global_plan

    def reset(self, checkpoint_id=None):
        self.checkpoint_id = checkpoint_id

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return os.path.isfile(checkpoint_id)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Makes the metadata from the dictionary that is loaded into, for storages that have none."""

    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        super().set_up_planner(state_dict, metadata, is_coordinator)
        described = {}
        for key, tensor in self.state_dict.items():
            if not isinstance(tensor, mica.Tensor):
                raise RuntimeError(_TENSORS_ONLY.format(key, type(self).__name__))
            described[key] = TensorStorageMetadata(
                TensorProperties(dtype=tensor.dtype), tensor.size(), _create_chunk_list(tensor)
            )
        self.metadata = Metadata(state_dict_metadata=described)


def dcp_to_torch_save(dcp_checkpoint_dir, torch_save_path):
    """Make a file of torch.save from the folder of a checkpoint."""
    loaded = {}
    reader = FileSystemReader(dcp_checkpoint_dir)
    _load_state_dict(loaded, reader, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    mica.save(loaded, torch_save_path)


def torch_save_to_dcp(torch_save_path, dcp_checkpoint_dir):
    """Make the folder of a checkpoint from a file of torch.save."""
    saved = mica.load(torch_save_path, weights_only=False)
    _save_state_dict(saved, FileSystemWriter(dcp_checkpoint_dir), no_dist=True)


def _main(words):
    ways = {"torch_to_dcp": (os.path.isfile, torch_save_to_dcp), "dcp_to_torch": (os.path.isdir, dcp_to_torch_save)}
    if len(words) != 3 or words[0] not in ways:
        raise SystemExit(__doc__)
    is_there, convert = ways[words[0]]
    if is_there(words[1]):
        convert(words[1], words[2])
    else:
        print(f"No checkpoint found at {words[1]}. Skipping conversion.")


if __name__ == "__main__":
    _main(sys.argv[1:])
