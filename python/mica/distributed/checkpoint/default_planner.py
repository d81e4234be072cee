"""The planners that are used where a program brings none."""

import dataclasses
import io
import math
from collections import ChainMap

import mica
from mica.distributed.checkpoint._dedup_save_plans import dedup_save_plans
from mica.distributed.checkpoint._nested_dict import flatten_as_before_2_4, flatten_state_dict
from mica.distributed.checkpoint._traverse import set_element
from mica.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, TensorStorageMetadata
from mica.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItemType
from mica.distributed.checkpoint.planner_helpers import (
    _compare_save_plans,
    _contains_usable_plan,
    _create_default_metadata_only_plan,
    _create_read_items,
    _create_write_items,
    _init_state_dict,
    _merge_delta_local_plans,
    _overlap,
    takes_part,
)
from mica.distributed.checkpoint.utils import find_state_dict_object, load_value, narrow_tensor_by_index
from mica.distributed.elastic.utils.logging import get_logger

__all__ = [
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "create_default_global_load_plan",
    "create_default_global_save_plan",
    "create_default_local_load_plan",
    "create_default_local_save_plan",
]

logger = get_logger(__name__)


class DefaultSavePlanner(SavePlanner):
    """Writes every value once. Nested dictionaries become one; with plan caching, plans that stay the same are not sent."""

    def __init__(
        self,
        flatten_state_dict=True,
        flatten_sharded_tensors=True,
        dedup_replicated_tensors=None,
        dedup_save_to_lowest_rank=False,
        enable_plan_caching=False,
    ):
        if dedup_replicated_tensors is not None:
            logger.warning(
                "DefaultSavePlanner's `dedup_replicated_tensors` argument is being deprecated, and no longer has any effect. "
                "Please remove this argument from your call."
            )
        self.flatten_state_dict, self.flatten_sharded_tensors = flatten_state_dict, flatten_sharded_tensors
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.mappings = {}
        self._cached_plans_key, self._enable_plan_caching = type(self).__name__, enable_plan_caching
        self._pending_local_plan = None

    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.is_coordinator = state_dict, is_coordinator

    def create_local_plan(self):
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            plan = dataclasses.replace(plan, planner_data=self.mappings)
        self.plan = plan
        if self._enable_plan_caching:
            last = SavePlanner._cached_save_plan.get(self._cached_plans_key)
            if last is not None and _compare_save_plans(plan, last):
                return SavePlan([], usable=False)
            self._pending_local_plan = plan  # kept once all ranks have agreed on a plan
        return plan

    def _create_global_plan(self, all_plans):
        plans, metadata = create_default_global_save_plan(dedup_save_plans(all_plans, self.dedup_save_to_lowest_rank))
        if self.flatten_state_dict:
            metadata = dataclasses.replace(
                metadata, planner_data=dict(ChainMap(*(plan.planner_data for plan in plans)))
            )
        if errors := _validate_global_plan(plans, metadata):
            text = "; ".join(errors)
            raise ValueError(
                f"Failed to validate global plan: {text if len(text) <= 500 else text[:500] + '... (truncated)'}"
            )
        return plans, metadata

    def _create_global_plan_with_caching(self, all_plans):
        """The plans to send to each rank, the plans of all ranks, and the metadata."""
        key, kept = self._cached_plans_key, SavePlanner
        unchanged = SavePlan([], usable=False)
        if key not in kept._cached_all_plans:
            plans, metadata = self._create_global_plan(all_plans)
            sent = plans
        elif not _contains_usable_plan(all_plans):
            return [unchanged] * len(all_plans), kept._cached_global_plan[key], kept._cached_metadata[key]
        else:
            all_plans = _merge_delta_local_plans(kept._cached_all_plans[key], all_plans)
            plans, metadata = self._create_global_plan(all_plans)
            sent = [
                unchanged if _compare_save_plans(old, new) else new
                for old, new in zip(kept._cached_global_plan[key], plans, strict=True)
            ]
        kept._cached_all_plans[key], kept._cached_global_plan[key] = all_plans, plans
        kept._cached_metadata[key] = metadata
        return sent, plans, metadata

    def create_global_plan(self, all_plans):
        if self._enable_plan_caching:
            sent, self.global_plan, self.metadata = self._create_global_plan_with_caching(all_plans)
        else:
            sent, self.metadata = self._create_global_plan(all_plans)
            self.global_plan = sent
        return sent, self.metadata

    def finish_plan(self, new_plan):
        if self._enable_plan_caching:
            kept, key = SavePlanner, self._cached_plans_key
            if new_plan.usable:
                kept._cached_final_save_plan[key] = new_plan
            else:
                new_plan = kept._cached_final_save_plan[key]
            if self._pending_local_plan is not None:
                kept._cached_save_plan[key], self._pending_local_plan = self._pending_local_plan, None
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item):
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index):
        """The value, or the piece of it, that an index names. For planners made from this one."""
        return find_state_dict_object(self.state_dict, index)

    def transform_object(self, write_item, object):
        """The items that are written for a value. Planners derived from this one override it."""
        if write_item.type != WriteItemType.BYTE_IO:
            return object
        data = io.BytesIO()
        mica.save(object, data)
        return data


class DefaultLoadPlanner(LoadPlanner):
    """Fills tensors in place, from pieces however they were cut. Keys that the checkpoint lacks are an error unless allowed."""

    def __init__(self, flatten_state_dict=True, flatten_sharded_tensors=True, allow_partial_load=False):
        self.flatten_state_dict, self.flatten_sharded_tensors = flatten_state_dict, flatten_sharded_tensors
        self.allow_partial_load = allow_partial_load
        self.original_state_dict, self.mappings = {}, {}

    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        _init_state_dict(state_dict)
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self):
        assert self.metadata is not None
        if self.flatten_state_dict:
            unknown = set(self.metadata.state_dict_metadata) - set(self.state_dict)
            if unknown:  # perhaps a checkpoint of torch 2.3, which has other names
                old, old_mappings = flatten_as_before_2_4(self.original_state_dict)
                if unknown & set(old):
                    self.state_dict, self.mappings = old, old_mappings
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def create_global_plan(self, global_plan):
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, new_plan):
        return new_plan

    def load_bytes(self, read_item, value):
        loaded, key = load_value(value), read_item.dest_index.fqn
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[key], loaded)
        else:
            self.state_dict[key] = loaded

    def resolve_tensor(self, read_item):
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item, tensor):
        """Nothing to do: the tensor is the one of the dictionary, or a view of it."""

    def lookup_tensor(self, index):
        """The tensor, or the part of it, that an index names. For planners made from this one."""
        return find_state_dict_object(self.state_dict, index)

    def transform_tensor(self, read_item, tensor):
        """The part of a tensor that is filled. Planners derived from this one override it."""
        return narrow_tensor_by_index(tensor, read_item.dest_offsets, read_item.lengths)


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Makes the dictionary from the metadata: all that the checkpoint holds, or what is under some keys."""

    def __init__(self, keys=None, *args, **kwargs):
        self.keys = keys
        super().__init__(*args, **kwargs)

    def _should_include_key(self, key, metadata):
        if self.keys is None or key in self.keys:
            return True
        path = (metadata.planner_data or {}).get(key, ())
        return any(".".join(map(str, path[:count])) in self.keys for count in range(1, len(path) + 1))

    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        assert not state_dict and metadata is not None
        for key, value in metadata.state_dict_metadata.items():
            if not self._should_include_key(key, metadata):
                continue
            if isinstance(value, TensorStorageMetadata):
                value = mica.empty(value.size, dtype=value.properties.dtype)
            if metadata.planner_data is not None and key in metadata.planner_data:
                set_element(state_dict, metadata.planner_data[key], value)
            else:
                state_dict[key] = value
        super().set_up_planner(state_dict, metadata, is_coordinator)


def create_default_local_load_plan(state_dict, metadata, strict=True):
    """The items to read to fill a dictionary."""
    items = []
    for fqn, value in state_dict.items():
        if fqn not in metadata.state_dict_metadata:
            if strict:
                raise RuntimeError(f"Missing key in checkpoint state_dict: {fqn}.")
            continue
        saved = metadata.state_dict_metadata[fqn]
        if isinstance(saved, TensorStorageMetadata) and isinstance(value, mica.Tensor) and saved.size != value.size():
            raise ValueError(
                f"Size mismatch between saved {saved.size} and current: {value.size()} for {fqn}",
            )
        if takes_part(value):
            items += _create_read_items(fqn, saved, value)
    return LoadPlan(items)


def create_default_global_load_plan(all_plans):
    """Every rank reads what it needs."""
    return all_plans


def create_default_local_save_plan(state_dict, is_coordinator):
    """The items of this rank. An item that several ranks have is written by one: that is decided for all together."""
    return SavePlan(
        [item for fqn, value in state_dict.items() if takes_part(value) for item in _create_write_items(fqn, value)]
    )


def create_default_global_save_plan(all_plans, rewrite_index_hints=True):
    """The plans of all ranks, in which pieces know their number, and the metadata."""
    described, plans = {}, []
    for plan in all_plans:
        items = []
        for item in plan.items:
            fqn, data = item.index.fqn, item.tensor_data
            assert item.type == WriteItemType.SHARD or fqn not in described, f"{fqn} would be written twice"
            if item.type == WriteItemType.BYTE_IO:
                described[fqn] = BytesStorageMetadata()
            else:
                tensor = described.setdefault(fqn, TensorStorageMetadata(data.properties, data.size, []))
                if rewrite_index_hints:
                    item = dataclasses.replace(item, index=dataclasses.replace(item.index, index=len(tensor.chunks)))
                tensor.chunks.append(data.chunk)
            items.append(item)
        plans.append(dataclasses.replace(plan, items=items))
    return plans, Metadata(described)


def _create_default_local_metadata(state_dict):
    """The metadata of a dictionary, as if it were saved."""
    return create_default_global_save_plan([_create_default_metadata_only_plan(state_dict)])[1]


def _within(size, chunk):
    return all(
        begin >= 0 and length >= 0 and begin + length <= whole
        for whole, begin, length in zip(size, chunk.offsets, chunk.sizes, strict=True)
    )


def _overlapping(chunks):
    """A pair of pieces that share elements, if there is one. Sorted by where they begin, only near ones are compared."""
    order = sorted(chunks, key=lambda chunk: tuple(chunk.offsets))
    open_ones = []
    for chunk in order:
        begin = chunk.offsets[0]
        open_ones = [each for each in open_ones if each.offsets[0] + each.sizes[0] > begin]
        for other in open_ones:
            if _overlap(chunk, other) is not None:
                return chunk, other
        open_ones.append(chunk)
    return None


def _validate_global_plan(global_plan, metadata):
    """The faults of a plan: pieces that lie outside of their tensor, share elements, or leave some out."""
    errors = []
    for key, value in metadata.state_dict_metadata.items():
        if isinstance(value, BytesStorageMetadata) or not value.size:
            continue
        for chunk in value.chunks:
            if not _within(value.size, chunk):
                errors.append(f"key:{key} has out of bounds chunk: tensor-size:{value.size} chunk: {chunk}")
        if len(value.chunks) > 1 and (pair := _overlapping(value.chunks)):
            errors.append(f"key:{key} has overlapping chunks: {pair[0]} {pair[1]}")
        volume, covered = math.prod(value.size), sum(math.prod(chunk.sizes) for chunk in value.chunks)
        if len(global_plan) > 1 and covered != volume:
            errors.append(f"key:{key} invalid fill tensor-volume: {volume} chunks-volume: {covered}")
    return errors
