"""Which pieces a value is written in, and which pieces of a checkpoint it is read from.

A tensor that is spread over ranks says so by three methods: `__create_write_items__(name, tensor)`, `__create_chunk_list__()` and
`__get_tensor_shard__(index)`. One that has only `device_mesh` and `placements` is understood too.
"""

import mica
from mica.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from mica.distributed.checkpoint.planner import (
    LoadItemType,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

__all__ = ["create_read_items_for_chunk_list"]


def is_spread(value):
    """Whether a value is a tensor whose parts are on several ranks."""
    return hasattr(value, "device_mesh") and hasattr(value, "placements")


def takes_part(value):
    """Whether this rank has a part of a value."""
    return not is_spread(value) or value.device_mesh.get_coordinate() is not None


def _local_box(tensor):
    """The box that a spread tensor has on this rank: each sharded dimension is split in ceilings, as torch's chunk does."""
    sizes, offsets = list(tensor.shape), [0] * tensor.dim()
    coordinate = tensor.device_mesh.get_coordinate()
    # Strided dimensions of the mesh split what dimensions to their right have split already.
    strided = [i for i, placement in enumerate(tensor.placements) if hasattr(placement, "split_factor")]
    order = [i for i in range(len(tensor.placements)) if i not in strided] + strided[::-1]
    for mesh_dim in order:
        placement = tensor.placements[mesh_dim]
        if placement.is_partial():
            raise ValueError(
                f"a tensor placed by {placement} has no elements of its own that could be saved or loaded: redistribute it first"
            )
        if not placement.is_shard():
            continue
        if mesh_dim in strided and placement.split_factor != _parts_to_the_right(tensor, mesh_dim):
            raise NotImplementedError(f"a checkpoint of a tensor placed by {placement}: it has to say its boxes itself")
        dim, parts, place = placement.dim, tensor.device_mesh.size(mesh_dim), coordinate[mesh_dim]
        most = -(-sizes[dim] // parts)
        begin = min(most * place, sizes[dim])
        offsets[dim] += begin
        sizes[dim] = min(begin + most, sizes[dim]) - begin
    return ChunkStorageMetadata(mica.Size(offsets), mica.Size(sizes))


def _parts_to_the_right(tensor, mesh_dim):
    """Into how many parts the later dimensions of the mesh split the dimension that one of them splits."""
    parts, dim = 1, tensor.placements[mesh_dim].dim
    for other in range(mesh_dim + 1, len(tensor.placements)):
        if tensor.placements[other].is_shard() and tensor.placements[other].dim == dim:
            parts *= tensor.device_mesh.size(other)
    return parts


def _whole(tensor):
    return ChunkStorageMetadata(mica.Size([0] * tensor.dim()), tensor.size())


def _create_chunk_list(tensor):
    """The boxes of a tensor that this rank has."""
    if hasattr(tensor, "__create_chunk_list__"):
        return tensor.__create_chunk_list__()
    if is_spread(tensor):
        return [_local_box(tensor)]
    if isinstance(tensor, mica.Tensor):
        return [_whole(tensor)]
    raise ValueError(f"Unsupported Type, expecting one of [Tensor, DTensor, ShardedTensor] ,but got {type(tensor)}")


def _tensor_item(fqn, kind, chunk, local, size):
    data = TensorWriteData(chunk, TensorProperties.create_from_tensor(local), size)
    return WriteItem(MetadataIndex(fqn, chunk.offsets), kind, tensor_data=data)


def _create_write_item_for_tensor(fqn, tensor):
    return _tensor_item(fqn, WriteItemType.TENSOR, _whole(tensor), tensor, tensor.size())


def _create_write_items(fqn, object):
    """The items to write for a value on this rank."""
    if hasattr(object, "__create_write_items__"):
        return object.__create_write_items__(fqn, object)
    if is_spread(object):
        return [_tensor_item(fqn, WriteItemType.SHARD, _local_box(object), object.to_local(), object.size())]
    if isinstance(object, mica.Tensor):
        return [_create_write_item_for_tensor(fqn, object)]
    return [WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)]


def _create_default_metadata_only_plan(state_dict):
    return SavePlan([item for fqn, value in state_dict.items() for item in _create_write_items(fqn, value)])


def _overlap(saved, wanted):
    """The box that two boxes share: where it begins in each, and its sizes. None if they share nothing."""
    in_saved, in_wanted, lengths = [], [], []
    for saved_begin, saved_size, begin, size in zip(
        saved.offsets, saved.sizes, wanted.offsets, wanted.sizes, strict=True
    ):
        first = max(saved_begin, begin)
        length = min(saved_begin + saved_size, begin + size) - first
        if length <= 0:
            return None
        in_saved.append(first - saved_begin)
        in_wanted.append(first - begin)
        lengths.append(length)
    return in_saved, in_wanted, lengths


def _by_first_dimension(chunks):
    """Pieces that begin at the same place of the first dimension, so that few are looked at for one box."""
    rows = {}
    for place, chunk in enumerate(chunks):
        key = (chunk.offsets[0], chunk.sizes[0]) if len(chunk.offsets) else (0, 1)
        rows.setdefault(key, []).append((place, chunk))
    return rows


def create_read_items_for_chunk_list(fqn, checkpoint_md, local_chunks):
    """The items to read to fill the boxes of this rank from the pieces of a checkpoint, however they were cut."""
    rows, items = _by_first_dimension(checkpoint_md.chunks), []
    for place, wanted in enumerate(local_chunks):
        begin, size = (wanted.offsets[0], wanted.sizes[0]) if len(wanted.offsets) else (0, 1)
        for (row, height), pieces in rows.items():
            if row >= begin + size or row + height <= begin:
                continue
            for index, saved in pieces:
                shared = _overlap(saved, wanted)
                if shared is None:
                    continue
                in_saved, in_wanted, lengths = map(mica.Size, shared)
                items.append(
                    ReadItem(
                        LoadItemType.TENSOR,
                        MetadataIndex(fqn, wanted.offsets, place),
                        in_wanted,
                        MetadataIndex(fqn, saved.offsets, index),
                        in_saved,
                        lengths,
                    )
                )
    return items


def _create_read_items(fqn, md, obj):
    """The items to read to fill a value."""
    if isinstance(md, BytesStorageMetadata):
        index, zero = MetadataIndex(fqn), mica.Size((0,))
        return [ReadItem(LoadItemType.BYTE_IO, index, zero, index, zero, zero)]
    try:
        chunks = _create_chunk_list(obj)
    except ValueError as error:
        raise ValueError(
            f"Invalid checkpoint metadata for {fqn}, expected BytesStorageMetadata but found {type(md)}"
        ) from error
    return create_read_items_for_chunk_list(fqn, md, chunks)


def _spread_with_memory(tensor):
    local = tensor.to_local()
    if local.device.type != "meta":
        return tensor
    from mica.distributed.tensor import DTensor

    return DTensor.from_local(
        mica.empty_like(local, device="cpu"),
        tensor.device_mesh,
        tensor.placements,
        shape=tensor.size(),
        stride=tensor.stride(),
    )


def _init_state_dict(state_dict):
    """Give memory to tensors on the meta device, in place, so that values can be loaded into them."""

    def visit(value):
        if is_spread(value):
            return _spread_with_memory(value)
        if isinstance(value, mica.Tensor):
            return mica.empty_like(value, device="cpu") if value.device.type == "meta" else value
        if isinstance(value, dict):
            for key in value:
                value[key] = visit(value[key])
            return value
        if isinstance(value, (list, tuple)):
            changed = [visit(each) for each in value]
            same = all(new is old for new, old in zip(changed, value, strict=True))
            return value if same else type(value)(changed)
        return value

    visit(state_dict)


def _compare_save_plans(plan, other):
    """Whether two plans would write the same: names, boxes, sizes and dtypes, whatever the values."""
    return plan.usable == other.usable and len(plan.items) == len(other.items) and all(
        mine.type == theirs.type
        and mine.index == theirs.index
        and mine.index.index == theirs.index.index
        and mine.tensor_data == theirs.tensor_data
        for mine, theirs in zip(plan.items, other.items, strict=True)
    )  # fmt: skip


def _contains_usable_plan(plans):
    return any(plan is not None and plan.usable for plan in plans)


def _merge_delta_local_plans(cached_plans, delta_plans):
    """The plans of all ranks, where some said that theirs is the one of the last time."""
    return [
        old if new is not None and not new.usable else new for old, new in zip(cached_plans, delta_plans, strict=True)
    ]
